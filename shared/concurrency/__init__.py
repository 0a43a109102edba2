"""Concurrent work in one process: batches, single flights, queues of leased rows, background loops."""
