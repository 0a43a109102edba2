"""Benchmarks of the stock: reservations, hold expiry, rebuild, and usual designs of selling stock."""
