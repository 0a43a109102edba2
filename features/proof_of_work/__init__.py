"""Proof of work: what a newcomer's browser computes, or waits, before it joins a line."""
