"""Simulates the fans of an on-sale over real HTTP and SSE, and checks the suite's guarantees."""
