"""Lotteries before a sale: entries, the draw, and the ranking that anyone can verify."""
