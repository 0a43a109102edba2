"""What every HTTP service has: the app, probes, problems, fast routes, field types."""
