"""Outgoing webhooks in Standard Webhooks form: endpoints, deliveries, and how they are sent."""
