"""What may wait for one reader, in the kernel and in the process, and how one whose machine has vanished is found."""

import socket
from contextlib import suppress
from typing import Any

from services.notifier.settings import Settings


def bound(transport: Any, settings: Settings) -> None:
    """Sets the bounds on a transport of asyncio's kind; one that is gone already has none."""
    transport.set_write_buffer_limits(high=settings.socket_buffer_bytes)
    reader = transport.get_extra_info("socket")
    with suppress(OSError):
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.socket_buffer_bytes)
        find_half_open(reader, settings.half_open_max_s)


def find_half_open(reader: Any, after_s: float) -> None:
    """The kernel ends a connection whose other side acknowledges nothing for this long. A write into a dead connection
    succeeds at first, so that only the kernel can tell; elsewhere than on Linux it asks by keepalive.
    """
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        reader.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(after_s * 1000))
        return
    probes = 3
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    first_s, next_s = max(1, int(after_s / 2)), max(1, int(after_s / 2 / probes))
    for name, value in (("TCP_KEEPIDLE", first_s), ("TCP_KEEPALIVE", first_s), ("TCP_KEEPINTVL", next_s),
                        ("TCP_KEEPCNT", probes)):  # fmt: skip
        if hasattr(socket, name):
            reader.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
