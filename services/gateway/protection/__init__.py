"""Identity of a request, proof of work and rate limits."""
