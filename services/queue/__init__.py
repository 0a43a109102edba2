"""Keeps the line: places, the gatekeeper that calls them, claims, and what is left after losing the engine."""
