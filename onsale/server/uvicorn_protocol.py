"""An answer leaves in one write: the server writes head and body apart, which costs two system calls, two segments and
two wake-ups of the reader for what is mostly a few hundred bytes.
"""

import asyncio
from typing import Any

from onsale.server.request_limits import BoundedRequests

HEAD_BEGINS = b"HTTP/1."


class HeadWaits:
    """A transport that keeps an answer's head until its body comes, or the loop's next turn. All else passes."""

    __slots__ = ("_head", "_later", "_transport")

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._later = asyncio.get_running_loop().call_soon
        self._head = b""

    def write(self, data: bytes) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head + data)
        elif data.startswith(HEAD_BEGINS):
            self._head = data
            self._later(self.flush)
        else:
            self._transport.write(data)

    def flush(self) -> None:
        """Writes a head whose body is not there yet: a long stream's."""
        if self._head:
            self.write(b"")

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def release(self) -> Any:
        """The transport itself, from which nothing is kept back: for what outlives its answer."""
        self.flush()
        return self._transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class WholeAnswers(BoundedRequests):
    """uvicorn's own protocol, within its limits, on such a transport."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(HeadWaits(transport))
