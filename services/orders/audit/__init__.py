"""The command log, and the invariants of orders and money."""
