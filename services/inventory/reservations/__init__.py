"""Reservations from the hold to the sale, the expiry or the return."""
