"""The stock: reservations, hold expiry, rebuild, and other ways to sell it."""
