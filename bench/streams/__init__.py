"""Live updates: what a listener costs."""
