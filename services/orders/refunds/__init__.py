"""Refunds: requested, planned and executed; refunds of whole events; decisions in review."""
