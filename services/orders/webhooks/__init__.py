"""Webhooks to the organiser in Standard Webhooks form: who gets them, what is owed, and how it is sent."""
