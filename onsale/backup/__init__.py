"""Backups of what cannot be had again: each service's ledger, the keys, the event files.

The engine (Redis) is not among them, as it is filled from the ledger; nor are the books of payment providers.
"""
