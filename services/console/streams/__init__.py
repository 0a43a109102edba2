"""Streams: each message is encoded once for everybody who watches an event."""
