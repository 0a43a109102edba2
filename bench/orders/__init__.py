"""Benchmarks of creating orders and of whole purchases."""
