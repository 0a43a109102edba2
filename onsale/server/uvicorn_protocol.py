"""Sends head and body of a response in one write, and answers at once what needs no waiting.

uvicorn writes head and body separately, which costs two system calls, two TCP segments and two wake-ups of the reader
for mostly a few hundred bytes. It also runs a task with messages for each request; a service's listener is asked first
whether it can begin without one (joins and the status of a waiting fan, of which a crowd asks for thousands a second).
"""

import asyncio
from functools import lru_cache
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from onsale.server.request_limits import BoundedRequests
from shared.web.answers import WITHOUT_BODY, Answer, Later

STATUS_LINE_START, INTERIM = b"HTTP/1.", b"HTTP/1.1 100 "
CLOSES = (b"connection", b"close")


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
        elif data.startswith(STATUS_LINE_START) and not data.startswith(INTERIM):  # its reader waits for it
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

    _answering: RequestResponseCycle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(DelayedHead(transport))

    def connection_lost(self, exc: Exception | None) -> None:
        """uvicorn tells only the request that was read last that the client has gone. The one that is being answered
        would write to a closed transport, which uvloop calls an error, and those behind it would be answered to nobody.
        """
        self.pipeline.clear()
        if self._answering is not None and not self._answering.response_complete:
            self._answering.disconnected = True
            self._answering.message_event.set()
        super().connection_lost(exc)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Answers at once, or when a batch ends, if the app can; otherwise starts a task. The head of the request was
        read, and no earlier request of this connection is unanswered.
        """
        self._answering = cycle
        if cycle is self.cycle and self.parser.should_upgrade():
            cycle.keep_alive = False  # the following bytes may already be of the other protocol
        found = app.begin(cycle.scope, cycle.receive) if hasattr(app, "begin") else app
        if self.flow.write_paused:
            super()._start_asgi_task(cycle, found)  # it waits until the client has read
        elif isinstance(found, Later):
            found.future.add_done_callback(lambda ended: self._finish(cycle, found.make(ended)))
        elif isinstance(found, Answer) and not self.pipeline:
            self._finish(cycle, found)
        else:
            super()._start_asgi_task(cycle, found)

    def _finish(self, cycle: RequestResponseCycle, answer: Answer) -> None:
        """Completes the cycle as uvicorn does. The transport writes the response in the event loop's next iteration,
        with those of the other requests that were read in this one: a client that is woken by each costs more.
        """
        if cycle.disconnected:
            return
        closes, start = _start(answer.status, tuple(self.server_state.default_headers))
        head = b"".join([b"%b: %b\r\n" % field for field in answer.fields])
        if closes:
            cycle.keep_alive = False
        elif not cycle.keep_alive:
            head += b"connection: close\r\n"
        if answer.status not in WITHOUT_BODY:
            head += b"content-length: %d\r\n" % len(answer.body)
        self.transport.write(b"%b%b\r\n%b" % (start, head, b"" if cycle.scope["method"] == "HEAD" else answer.body))
        cycle.response_started = cycle.response_complete = True
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()


@lru_cache(maxsize=16)
def _start(status: int, fields: tuple[tuple[bytes, bytes], ...]) -> tuple[bool, bytes]:
    """Whether the server's own header fields close the connection; the response's start. They change once a second."""
    return CLOSES in fields, STATUS_LINE[status] + b"".join([b"%b: %b\r\n" % field for field in fields])
