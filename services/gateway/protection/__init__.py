"""Who a request is from, and how much one of them may ask: identity, proof of work, rate limits."""
