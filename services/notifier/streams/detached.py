"""A stream whose connection has left the server's request machinery: after the head, the transport is ours.

The request's task ends, the server's protocol, parser and request are let go of, and one slotted object takes their
place. That reaches into uvicorn, so it is done only with a version that was tried;
`tests/notifier/streams/test_detached.py` says what is relied on. Whatever is not as expected is held portably instead.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from services.notifier.broadcast.hub import Hub
from services.notifier.streams import asgi
from services.notifier.streams.connection import Connection, Message
from services.notifier.streams.handshake import StreamHandshake, bound, head

TRIED = frozenset({"0.54.0"})


def may_detach() -> bool:
    """Whether this is a uvicorn whose insides are known."""
    return uvicorn.__version__ in TRIED


class Detached(Connection, asyncio.Protocol):
    """Writes chunks straight to the transport, and is told by it when the reader pauses, reads again or leaves."""

    __slots__ = ("_hub", "transport")
    way = "detached"

    def __init__(self, hub: Hub, transport: Any, left: Callable[[], object]) -> None:
        super().__init__(left)
        self._hub, self.transport = hub, transport

    def write(self, message: Message) -> bool:
        if self.paused_since_s is not None:
            return False
        self.transport.write(message.chunk)
        return True

    def end(self, data: bytes) -> bool:
        self.transport.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data))
        self.transport.close()
        return True

    def hang_up(self) -> None:
        self.transport.abort()

    def pause_writing(self) -> None:
        self._hub.stopped_reading(self)

    def resume_writing(self) -> None:
        self._hub.reads_again(self)

    def data_received(self, data: bytes) -> None:
        """A listener has nothing more to say; whoever talks on is sent away."""
        self._hub.close(self, why="left")

    def connection_lost(self, exc: Exception | None) -> None:
        self._hub.leave(self, why="half_open" if isinstance(exc, TimeoutError) else "left")


async def hold(opening: StreamHandshake) -> bool:
    """Sends the head and takes the connection over; answers whether it did: the stream then outlives the request."""
    cycle = opening.cycle
    protocol = _protocol_of(cycle) if may_detach() else None
    if protocol is None:
        return await asgi.hold(opening)
    await opening.send(head())
    if cycle.disconnected or cycle.transport.is_closing():
        return False
    connection = Detached(opening.hub, cycle.transport, opening.left)
    _let_go(protocol, cycle)
    cycle.transport.set_protocol(connection)
    bound(cycle.transport, opening.hub.settings)
    opening.listen(connection)  # head and first frame leave together, where the transport in between sees to that
    release = getattr(cycle.transport, "release", None)
    if release is not None:
        connection.transport = release()
    return True


def _protocol_of(cycle: Any) -> HttpToolsProtocol | None:
    """The server's protocol, if this request is the only one on its connection and its answer will be chunked."""
    if not isinstance(cycle, RequestResponseCycle) or cycle.scope["http_version"] != "1.1":
        return None
    protocol = cycle.transport.get_protocol()
    if not isinstance(protocol, HttpToolsProtocol) or protocol.cycle is not cycle or protocol.pipeline:
        return None
    return protocol


def _let_go(protocol: HttpToolsProtocol, cycle: RequestResponseCycle) -> None:
    """What the server itself does when a connection becomes a WebSocket's or is lost, so that nothing refers to it."""
    protocol.flow.resume_reading()
    protocol._unset_keepalive_if_required()  # noqa: SLF001 - see TRIED
    protocol.connections.discard(protocol)
    protocol.parser = None  # type: ignore[assignment]  # it refers back to the protocol
    protocol.cycle = protocol.scope = protocol.headers = None  # type: ignore[assignment]
    cycle.disconnected = True  # the request ends here without having been answered in full
