"""Sends head and body of a response in one write.

uvicorn writes them separately, which costs two system calls, two TCP segments and two wake-ups of the reader for mostly
a few hundred bytes.
"""

import asyncio
from typing import Any

from onsale.server.request_limits import BoundedRequests

STATUS_LINE_START = b"HTTP/1."


class DelayedHead:
    """A transport that delays a response's head until its body comes, or the event loop's next iteration."""

    __slots__ = ("_head", "_later", "_transport")

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._later = asyncio.get_running_loop().call_soon
        self._head = b""

    def write(self, data: bytes) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head + data)
        elif data.startswith(STATUS_LINE_START):
            self._head = data
            self._later(self.flush)
        else:
            self._transport.write(data)

    def flush(self) -> None:
        """Writes a head whose body has not come yet, as of a stream."""
        if self._head:
            self.write(b"")

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def release(self) -> Any:
        """The wrapped transport, with nothing delayed: for streams that write to it directly."""
        self.flush()
        return self._transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class SingleWriteProtocol(BoundedRequests):
    """uvicorn's protocol with request limits, on such a transport."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(DelayedHead(transport))
