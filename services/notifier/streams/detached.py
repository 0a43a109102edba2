"""The detached transport: after the head, it takes the connection over from the server's request machinery.

The request's task ends, the server's protocol, parser and request are released, and one slotted object takes their
place. That uses uvicorn's internals, so it is done with tested versions only; `tests/notifier/streams/test_detached.py`
states what is relied on. In every other case the ASGI transport serves the stream.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from services.notifier.broadcast.hub import Hub
from services.notifier.streams import asgi
from services.notifier.streams.connection import Connection, Message
from services.notifier.streams.handshake import StreamHandshake, head_message, set_socket_limits

TESTED_VERSIONS = frozenset({"0.54.0"})


def is_supported() -> bool:
    """Whether this version of uvicorn was tested."""
    return uvicorn.__version__ in TESTED_VERSIONS


class DetachedStream(Connection, asyncio.Protocol):
    """Writes chunks straight to the transport, which calls back when the reader pauses, resumes or leaves."""

    __slots__ = ("_hub", "transport")
    transport_name = "detached"

    def __init__(self, hub: Hub, transport: Any, on_end: Callable[[], object]) -> None:
        super().__init__(on_end)
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

    def abort(self) -> None:
        self.transport.abort()

    def pause_writing(self) -> None:
        self._hub.pause(self)

    def resume_writing(self) -> None:
        self._hub.resume(self)

    def data_received(self, data: bytes) -> None:
        """Closes the stream: a listener has nothing more to send."""
        self._hub.close(self, reason="left")

    def connection_lost(self, exc: Exception | None) -> None:
        self._hub.remove(self, reason="half_open" if isinstance(exc, TimeoutError) else "left")


async def serve(handshake: StreamHandshake) -> bool:
    """Sends the head and takes the connection over. Returns whether the stream outlives its request."""
    cycle = handshake.cycle
    protocol = _protocol_of(cycle) if is_supported() else None
    if protocol is None:
        return await asgi.serve(handshake)
    await handshake.send(head_message())
    if cycle.disconnected or cycle.transport.is_closing():
        return False
    connection = DetachedStream(handshake.hub, cycle.transport, handshake.on_end)
    _release(protocol, cycle)
    cycle.transport.set_protocol(connection)
    set_socket_limits(cycle.transport, handshake.hub.settings)
    handshake.start(connection)  # head and first frame leave together if the transport buffers them
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


def _release(protocol: HttpToolsProtocol, cycle: RequestResponseCycle) -> None:
    """Does what the server does when a connection is upgraded or lost, so that nothing refers to it."""
    protocol.flow.resume_reading()
    protocol._unset_keepalive_if_required()  # noqa: SLF001 - see TESTED_VERSIONS
    protocol.connections.discard(protocol)
    protocol.parser = None  # type: ignore[assignment]  # it refers back to the protocol
    protocol.cycle = protocol.scope = protocol.headers = None  # type: ignore[assignment]
    cycle.disconnected = True  # the request ends here before its answer is complete
