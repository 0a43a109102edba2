"""Sends head and body of a response in one write, and answers at once what needs no waiting.

uvicorn writes head and body separately, which costs two system calls, two TCP segments and two wake-ups of the reader
for mostly a few hundred bytes. It also runs a task with messages for each request; a service's listener is asked first
whether it can begin without one (joins and the status of a waiting fan, of which a crowd asks for thousands a second).
"""

from functools import lru_cache, partial
from typing import Any

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from onsale.server.request_limits import BoundedRequests
from shared.web.answers import WITHOUT_BODY, Answer, Later
from shared.web.listener import Pending

CLOSES = (b"connection", b"close")


class SingleWriteProtocol(BoundedRequests):
    """uvicorn's protocol with request limits, which writes a service's answers itself."""

    _answering: RequestResponseCycle | None = None

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
        elif isinstance(found, Pending):
            super()._start_asgi_task(cycle, partial(self._run, cycle, found))
        else:
            super()._start_asgi_task(cycle, found)

    async def _run(
        self, cycle: RequestResponseCycle, pending: Pending, scope: Scope, receive: Receive, send: Send
    ) -> None:
        answer = await pending.run(send)
        if answer is not None:
            await self.flow.drain()
            self._finish(cycle, answer)

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
