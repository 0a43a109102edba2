"""Whether a request in front of another site may pass: the question, the decision, and what it is decided by."""
