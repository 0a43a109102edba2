"""The workers: an order's due steps, each under a lease."""
