"""The line as a gateway knows it: the last snapshot, wait estimates from it, and its calls to the queue service."""
