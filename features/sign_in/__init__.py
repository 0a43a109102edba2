"""Fans who sign in at the seller: each is known by the token of the seller's identity provider."""
