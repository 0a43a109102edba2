"""One order: its states, its next step, its rows in PostgreSQL, and who may see what of it."""
