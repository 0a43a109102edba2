"""The operators' API: orders, support actions, events."""
