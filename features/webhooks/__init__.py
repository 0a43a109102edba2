"""Webhooks to organisers' own systems: signed messages about orders, retried for days."""
