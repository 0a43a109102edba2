"""The stock in Redis: atomic holds in front of PostgreSQL, and its rebuild from there."""
