"""The part of the queue."""
