"""Checkout: from a reservation to an order."""
