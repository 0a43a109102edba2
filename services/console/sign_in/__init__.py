"""Sign-in: an operator's key, or a link that works once, becomes the cookie of a session."""
