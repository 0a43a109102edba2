"""Inventory: what is available, who holds what until when, and the tables that cannot be oversold."""
