"""The steps of an order: what is done at the provider and at inventory, and what is written of it."""
