"""Forward-auth: whether a request to another site may pass, for its proxy, its app or its content network's edge."""
