"""Stripe as payment provider."""
