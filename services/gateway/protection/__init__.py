"""Identity of a request, and rate limits."""
