"""Limits on a request before an app sees it: size and lines of its head, exactly one `Host`, one way to say where its
body ends, complete in time.

A connection without a complete request costs its sender nothing and this process a file descriptor. It has a deadline,
and it is closed first when descriptors run out. A connection for which none is left is refused at once.
"""

import asyncio
from typing import Any, NoReturn

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from shared.errors import problems
from shared.errors.problems import Problem
from shared.runtime.descriptors import BINDS, descriptors_max, descriptors_spare
from shared.runtime.logging import get_logger

log = get_logger("onsale.connections")
HEAD_MAX_BYTES = 64 * 1024
HEAD_LINES_MAX = 100
HEAD_WITHIN_S = 10.0
REQUEST_WITHIN_S = 30.0
CHECK_INTERVAL_S = 1.0
LINGER_S = 1.0
LOG_AGAIN_S = 10.0
FULL_FOR_S = 5.0
VERSIONS = ("1.0", "1.1")


class IncompleteRequests:
    """Connections whose request is not complete yet, the longest waiting first."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._since_s: dict[BoundedRequests, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._logged_s = self._full_until_s = float("-inf")

    def add(self, connection: "BoundedRequests") -> None:
        self._since_s.setdefault(connection, self._loop.time())
        if self._timer is None:
            self._timer = self._loop.call_later(CHECK_INTERVAL_S, self._drop_late)

    def remove(self, connection: "BoundedRequests") -> None:
        self._since_s.pop(connection, None)

    def has_room(self, newcomer: "BoundedRequests", descriptor: int) -> bool:
        """Whether a new connection may stay. Its descriptor was the lowest free one. When that is near the limit,
        another connection is closed for it, and for a while one for each newcomer: they then get lower descriptors.
        """
        now_s = self._loop.time()
        is_last = descriptor >= descriptors_max() - descriptors_spare()
        if is_last:
            self._full_until_s = now_s + FULL_FOR_S
        if now_s >= self._full_until_s:
            return True
        if now_s - self._logged_s > LOG_AGAIN_S:
            self._logged_s = now_s
            log.warning("descriptors.exhausted", what_binds=BINDS.format(descriptors_max()))
        return self._drop_slowest(newcomer) or not is_last

    def _drop_slowest(self, newcomer: "BoundedRequests") -> bool:
        """Closes the connection that has waited longest for the rest of its request, or else an idle one. Whether there
        was one.
        """
        others = (connection for connection in self._since_s if connection is not newcomer)
        idle = (connection for connection in newcomer.connections if getattr(connection, "is_idle", False))
        victim: Any = next(others, None) or next(idle, None)
        if victim is None:
            return False
        self.remove(victim)
        victim.transport.abort()
        return True

    def _drop_late(self) -> None:
        now_s = self._loop.time()
        for connection, since_s in list(self._since_s.items()):
            if now_s - since_s > (HEAD_WITHIN_S if connection.in_head else REQUEST_WITHIN_S):
                connection.refuse(problems.RequestTimeout())
        self._timer = self._loop.call_later(CHECK_INTERVAL_S, self._drop_late) if self._since_s else None


class BoundedRequests(HttpToolsProtocol):
    """uvicorn's protocol with these limits. A refusal is a problem document and closes the connection."""

    def __init__(self, *args: Any, incomplete: IncompleteRequests, **named: Any) -> None:
        super().__init__(*args, **named)
        self._incomplete = incomplete
        self._is_whole = self.in_head = True  # whole: no part of a request is missing
        self._ended = self._is_chunked = self._has_length = False
        self._head_bytes = self._hosts = 0
        self._refused, self.url = False, b""
        self._refusal: Problem | None = None  # to be sent when the requests before are answered
        self._parse_error: Problem = problems.MalformedRequest()

    @property
    def is_idle(self) -> bool:
        """Whether its last request was answered and no new one has begun."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and cycle.response_complete and self._is_whole

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._incomplete.add(self)
        if not self._incomplete.has_room(self, transport.get_extra_info("socket").fileno()):
            self._refused = True
            self._answer(problems.Overloaded("This process can take no more connections. Try again shortly."))
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._incomplete.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._unset_keepalive_if_required()
        try:
            for at in range(0, len(data), HEAD_MAX_BYTES):
                self._feed(data[at : at + HEAD_MAX_BYTES])
        except httptools.HttpParserUpgrade:
            pass  # the response closes the connection
        except httptools.HttpParserError as malformed:
            if isinstance(malformed, httptools.HttpParserInvalidURLError):
                self.url = self.url or b"/"  # there is one, so the method was read
            self.refuse(self._parse_error)

    def _feed(self, data: bytes) -> None:
        """Parses the data and counts the bytes of heads. When a chunk holds the end of a request and the beginning
        of the next, the next one is counted from the following chunk on.
        """
        self._ended = False
        self.parser.feed_data(data)
        if self._ended and self._is_whole:
            return
        self._incomplete.add(self)
        self._head_bytes = 0 if self._ended else self._head_bytes + len(data)
        if self._head_bytes >= HEAD_MAX_BYTES:
            self._refuse_to_parse(problems.HeadTooLarge())

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_whole = self._is_chunked = self._has_length = False
        self._hosts = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.in_head:
            return  # a trailer: not used
        if len(self.headers) >= HEAD_LINES_MAX:
            self._refuse_to_parse(problems.HeadTooLarge())
        name, sent, value = name.lower(), value, value.rstrip(b" \t")  # which is no part of it (RFC 9110, 5.5)
        if name == b"host":
            self._hosts += 1
        elif name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        elif name == b"content-length":
            self._has_length = value != b"0"
        elif name == b"transfer-encoding":
            if self._is_chunked or sent.lower() != b"chunked":  # a proxy may read another one otherwise
                self._refuse_to_parse(problems.MalformedRequest("The only Transfer-Encoding is chunked."))
            self._is_chunked = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        version = self.parser.get_http_version()
        if version not in VERSIONS or (self._is_chunked and version == "1.0"):
            self._refuse_to_parse(problems.MalformedRequest("Send HTTP/1.1."))
        if self._hosts != 1 and (self._hosts or version != "1.0"):
            self._refuse_to_parse(problems.MalformedRequest("Send exactly one Host header."))
        upgrades = self.parser.should_upgrade()
        if upgrades and (self._has_length or self._is_chunked):  # the parser would drop the body
            self._refuse_to_parse(problems.MalformedRequest("A request with Upgrade cannot have a body."))
        if upgrades and self._get_upgrade() == b"websocket":
            self._refuse_to_parse(problems.NotFound("WebSocket is not supported."))
        super().on_headers_complete()
        self.in_head = False

    def on_body(self, body: bytes) -> None:
        self._head_bytes = -len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_whole = self._ended = self.in_head = True
        self._head_bytes = 0
        self._incomplete.remove(self)
        super().on_message_complete()

    def _refuse_to_parse(self, problem: Problem) -> NoReturn:
        self._parse_error = problem
        raise httptools.HttpParserError

    def refuse(self, problem: Problem) -> None:
        """Answers with the problem once the requests before are answered, unless a response to this one has begun, and
        closes the connection.
        """
        self._refused = True
        self._incomplete.remove(self)
        cycle: RequestResponseCycle | None = self.cycle
        if not self.in_head and self.pipeline:
            self.pipeline.popleft()  # its head was read, and no app has it yet
            self._refusal = problem
        elif cycle is None or (self.in_head and cycle.response_complete):
            self._refuse_now(problem)
        elif self.in_head:
            self._refusal = problem
        elif cycle.response_started:
            self.transport.close()
        else:
            cycle.disconnected = True
            cycle.message_event.set()
            self._refuse_now(problem)

    def on_response_complete(self) -> None:
        is_last = not self.pipeline
        super().on_response_complete()
        if self._refusal is not None and is_last and not self.transport.is_closing():
            self._refuse_now(self._refusal)

    def _refuse_now(self, problem: Problem) -> None:
        self._answer(problem)
        if self.transport.can_write_eof():
            self.transport.write_eof()  # a client that still sends would lose answers if the connection was closed now
        self.loop.call_later(LINGER_S, self.transport.abort)

    def _answer(self, problem: Problem) -> None:
        body = problem.body()
        fields = {"content-type": problems.MEDIA_TYPE, "content-length": str(len(body)), **problem.headers()}
        lines = [name.encode() + b": " + value.encode() + b"\r\n" for name, value in fields.items()]
        lines += [b"%b: %b\r\n" % each for each in self.server_state.default_headers if each[0] != b"connection"]
        is_head = self.url and self.parser.get_method() == b"HEAD"  # without a target it may be that of the one before
        parts = [STATUS_LINE[problem.code], *lines, b"connection: close\r\n\r\n", b"" if is_head else body]
        self.transport.write(b"".join(parts))
