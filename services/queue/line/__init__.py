"""The line itself: joins, places, claims and sessions, in Redis in front of PostgreSQL."""
