"""Batched reports to the queue, for the services that see fans."""
