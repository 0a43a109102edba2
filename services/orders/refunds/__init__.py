"""Refunds: what is asked for, how much, and its execution at the provider."""
