"""Tickets of a sold order: codes, PDF, and the show they are for."""
