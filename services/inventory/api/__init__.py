"""The fans' API of seats and reservations."""
