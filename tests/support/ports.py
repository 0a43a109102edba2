"""Ports for what is restarted: outside the range that the kernel lends, so that nobody takes them meanwhile."""

import random
import socket

FIRST, LAST = 12_000, 30_000


def steady_port() -> int:
    """A port nobody listens on, and that nobody is given by chance while its owner is away."""
    while True:
        port = random.randint(FIRST, LAST)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
