"""E-mail about orders and holds."""
