"""Promo codes: what they take off a price, how often, for whom, and what operators do with them."""
