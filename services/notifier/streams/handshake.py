"""A stream that is about to begin: all that a way of holding it needs to know.

What may wait for one reader, in the kernel and in the process, and how one whose machine has vanished is found.
"""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from starlette.types import Receive, Scope

from services.notifier.broadcast.hub import Hub
from services.notifier.broadcast.topic import Topic
from services.notifier.settings import Settings
from services.notifier.streams.connection import Connection
from shared.web.app import RECEIVE_KEY


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


HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
    (b"connection", b"close"),
)


def head() -> dict[str, Any]:
    """The head of every stream; layers on its way out add to it."""
    return {"type": "http.response.start", "status": 200, "headers": list(HEADERS)}


@dataclass(frozen=True, slots=True)
class StreamHandshake:
    """`left` is to be called once when the stream has ended."""

    hub: Hub
    topic: Topic
    scope: Scope
    receive: Receive
    send: Callable[[Any], Coroutine[Any, Any, None]]
    left: Callable[[], object]

    @property
    def cycle(self) -> Any:
        """The server's own object behind this request, beneath all layers; `None` if it cannot be reached."""
        return getattr(self.scope.get(RECEIVE_KEY), "__self__", None)

    def hang_up(self) -> Callable[[], object]:
        """How to cut this reader off at once. With the transport in reach, bounds are set on what may wait for it."""
        transport: Any = getattr(self.cycle, "transport", None)
        if not hasattr(transport, "abort"):  # by its verbs: uvloop's transports are no `asyncio.Transport`
            task = asyncio.current_task()
            assert task is not None
            return task.cancel
        bound(transport, self.hub.settings)
        abort: Callable[[], object] = transport.abort
        return abort

    def listen(self, connection: Connection) -> None:
        """The connection is the hub's from now on."""
        ids = (value for name, value in self.scope["headers"] if name == b"last-event-id")
        self.hub.open(connection, self.topic, last_event_id=next(ids, None))
