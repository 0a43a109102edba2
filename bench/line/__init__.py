"""The line: joins, status, memory, refill, and other designs of it."""
