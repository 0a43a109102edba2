"""Backups of what cannot be computed again: each service's tables, the keys, the event files.

Redis is not backed up, as it is rebuilt from PostgreSQL; neither are the records of payment providers.
"""
