"""Inventory: what is left, who holds what until when, and the ledger that cannot be oversold."""
