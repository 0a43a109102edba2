"""Processing of orders: the processor, the worker pool and the job queue."""
