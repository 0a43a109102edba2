"""The operators' API of waiting rooms."""
