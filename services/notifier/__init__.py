"""The notifier: event streams (SSE) of the line, availability and orders; each change is encoded once."""
