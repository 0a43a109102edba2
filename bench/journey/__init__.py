"""Benchmarks of whole journeys: README's two commands, and a real on-sale replayed."""
