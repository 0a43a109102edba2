"""Forward-auth: whether a request to a protected site may pass."""
