"""The operators' API of waiting rooms and access codes."""
