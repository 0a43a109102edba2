"""The detached transport: after the head, it takes the connection over from the server's request machinery.

The request's task ends, the server's protocol, parser, request and transport are released, and one slotted object that
owns the socket takes their place. That uses uvicorn's internals, so it is done with tested versions only;
`tests/notifier/streams/test_slow_reader.py` states what is relied on. In every other case the ASGI transport serves the
stream.
"""

import asyncio
import os
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from services.notifier.streams import asgi
from services.notifier.streams.handshake import StreamHandshake, head_message, set_socket_limits
from services.notifier.topics.hub import Hub
from services.notifier.topics.topic import Connection, Message

TESTED_VERSIONS = frozenset({"0.54.0"})
READ_MAX_BYTES = 65_536
CLOSED = -1
_NO_PROTOCOL = asyncio.Protocol()


def is_supported() -> bool:
    """Whether this version of uvicorn was tested."""
    return uvicorn.__version__ in TESTED_VERSIONS


class DetachedStream(Connection):
    """Writes chunks straight to the socket, one system call each. It keeps at most the rest of one chunk that the
    socket did not take, and is paused until that is written.
    """

    __slots__ = ("_fd", "_hub", "_unsent")
    transport_name = "detached"

    def __init__(self, hub: Hub, fd: int, on_end: Callable[[], object]) -> None:
        super().__init__(on_end)
        self._hub, self._fd, self._unsent = hub, fd, b""
        asyncio.get_running_loop().add_reader(fd, self._on_readable)

    def write(self, message: Message) -> bool:
        if self._unsent:
            return False
        self._write(message.chunk)
        return True

    def _write(self, data: bytes) -> None:
        try:
            written = os.write(self._fd, data)
        except BlockingIOError:
            written = 0
        except OSError as gone:
            self._on_lost(gone)
            return
        if written < len(data):
            self._unsent = data[written:]
            asyncio.get_running_loop().add_writer(self._fd, self._on_writable)
            self._hub.pause(self)

    def _on_writable(self) -> None:
        asyncio.get_running_loop().remove_writer(self._fd)
        unsent, self._unsent = self._unsent, b""
        self._write(unsent)
        if not self._unsent:
            self._hub.resume(self)

    def _on_readable(self) -> None:
        """Closes the stream: the listener has left, or sends something although it has nothing more to send."""
        try:
            data = os.read(self._fd, READ_MAX_BYTES)
        except BlockingIOError:
            return
        except OSError as gone:
            self._on_lost(gone)
            return
        if data:
            self._hub.close(self, reason="left")
        else:
            self._on_lost(None)

    def _on_lost(self, gone: OSError | None) -> None:
        self.abort()
        self._hub.remove(self, reason="half_open" if isinstance(gone, TimeoutError) else "left")

    def end(self, data: bytes) -> bool:
        last = b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data)
        try:
            return os.write(self._fd, last) == len(last)
        finally:
            self.abort()

    def abort(self) -> None:
        fd, self._fd = self._fd, CLOSED
        if fd != CLOSED:
            loop = asyncio.get_running_loop()
            loop.remove_reader(fd)
            loop.remove_writer(fd)
            os.close(fd)


async def serve(handshake: StreamHandshake) -> bool:
    """Sends the head and takes the connection over. Returns whether the stream outlives its request."""
    cycle = handshake.cycle
    protocol = _protocol_of(cycle) if is_supported() else None
    if protocol is None:
        return await asgi.serve(handshake)
    await handshake.send(head_message())
    transport = cycle.transport
    if transport.get_write_buffer_size():  # the listener does not even take the head
        transport.abort()
        await asyncio.sleep(0)
    if cycle.disconnected or transport.is_closing():
        return False
    set_socket_limits(transport, handshake.hub.tuning)
    fd = os.dup(transport.get_extra_info("socket").fileno())
    _release(protocol, cycle)
    transport.set_protocol(_NO_PROTOCOL)
    transport.abort()  # closes its own descriptor; the connection lives on in ours
    handshake.start(DetachedStream(handshake.hub, fd, handshake.on_end))
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
