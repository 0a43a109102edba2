"""The handshake of a stream: everything a transport needs to serve it, and the limits of its socket.

The socket limits bound the unsent data of one reader and let the kernel detect a reader whose machine has vanished.
"""

import asyncio
import math
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from starlette.types import Receive, Scope

from services.notifier.topics.hub import Hub
from services.notifier.topics.topic import Connection, Topic
from services.notifier.tuning import Tuning


def set_socket_limits(transport: Any, tuning: Tuning) -> None:
    """Sets the limits on an asyncio transport; does nothing if it is closed already."""
    transport.set_write_buffer_limits(high=tuning.socket_buffer_bytes)
    reader = transport.get_extra_info("socket")
    with suppress(OSError):
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, tuning.socket_buffer_bytes)
        set_half_open_timeout(reader, tuning.half_open_max_s)


def set_half_open_timeout(reader: Any, after_s: float) -> None:
    """Makes the kernel end a connection whose other side acknowledges nothing for this long. A write to a dead
    connection succeeds at first, so only the kernel can detect it; by keepalive probes outside Linux.
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


def head_message() -> dict[str, Any]:
    """The response head of every stream; middleware adds to it."""
    return {"type": "http.response.start", "status": 200, "headers": list(HEADERS)}


@dataclass(frozen=True, slots=True)
class StreamHandshake:
    """`on_end` must be called once when the stream has ended; `on_open` is told of its connection. It lasts at most
    `lasts_s`.
    """

    hub: Hub
    topic: Topic
    scope: Scope
    receive: Receive
    send: Callable[[Any], Coroutine[Any, Any, None]]
    on_end: Callable[[], object]
    on_open: Callable[[Connection], object] = lambda _: None
    lasts_s: float = math.inf

    @property
    def cycle(self) -> Any:
        """The server's object of this request; `None` if it cannot be reached."""
        return getattr(self.receive, "__self__", None)

    def aborter(self) -> Callable[[], object]:
        """The function that closes this connection at once. Sets the socket limits if the transport can be reached."""
        transport: Any = getattr(self.cycle, "transport", None)
        if not hasattr(transport, "abort"):  # checked by method: uvloop's transports are no `asyncio.Transport`
            task = asyncio.current_task()
            assert task is not None
            return task.cancel
        set_socket_limits(transport, self.hub.tuning)
        abort: Callable[[], object] = transport.abort
        return abort

    def start(self, connection: Connection) -> None:
        """Hands the connection to the hub."""
        ids = (value for name, value in self.scope["headers"] if name == b"last-event-id")
        self.hub.open(connection, self.topic, last_event_id=next(ids, None), lasts_s=self.lasts_s)
        self.on_open(connection)
