"""The line in this process: cached snapshots, wait estimates, and batched calls to the queue."""
