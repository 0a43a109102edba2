"""PostgreSQL compared with Redis and with itself; what differs is repaired."""
