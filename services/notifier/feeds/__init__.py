"""Where news comes from: one feed an event or order, filled from Pub/Sub and from its service."""
