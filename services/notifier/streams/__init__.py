"""One browser's SSE stream: handshake, limits, and the transport that carries it."""
