"""Moves a room's rate by itself, and says in advance what a rate would do."""
