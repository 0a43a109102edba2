"""The fans' and shops' API: orders, tickets, payment webhooks."""
