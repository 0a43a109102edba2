"""From a reservation to an order in payment, once per idempotency key."""
