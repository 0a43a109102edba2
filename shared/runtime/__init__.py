"""What a process needs besides its work: settings, logs, metrics, background tasks, batches, clocks."""
