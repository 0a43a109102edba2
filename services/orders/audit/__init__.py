"""The audit log, the command log, and the invariants of orders and money."""
