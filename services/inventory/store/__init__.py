"""The stock in PostgreSQL: reservations, seats and sections; rows in, rows out, no rule."""
