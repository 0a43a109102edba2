"""A lean HTTP/1.1 client for internal calls: keep-alive connections and complete responses, nothing else.

A general client costs a millisecond of CPU per call, more than the queue spends on a whole batch of joins. This one
feeds `httptools`, the parser of uvicorn, directly from the transport, at about a tenth of that.
"""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple, Self, cast
from urllib.parse import urlsplit

import httptools

ANSWER_MAX_BYTES = 16 * 1024 * 1024
IDLE_MAX_S = 60.0  # the suite's servers close a connection after 75 s, and a request would meet that half way


class ConnectionLost(ConnectionError):
    """The connection could not be opened, or broke before the response was complete."""


class HttpResponse(NamedTuple):
    """Status, headers (names in lower case) and the whole body."""

    status_code: int
    headers: dict[str, str]
    content: bytes


class _Connection(asyncio.Protocol):
    """One connection with one exchange at a time. The parser calls the `on_…` methods."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.idle_since_s = 0.0
        self._answer: asyncio.Future[HttpResponse] | None = None
        self._reset()

    def _reset(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._size = 0

    @property
    def is_open(self) -> bool:
        return self.transport is not None and not self.transport.is_closing()

    async def exchange(self, request: bytes) -> HttpResponse:
        assert self.transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self._answer

    def close(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's transport is one without declaring it

    def data_received(self, received: bytes) -> None:
        try:
            self._parser.feed_data(received)
        except httptools.HttpParserError:
            self.close()

    def connection_lost(self, reason: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionLost(str(reason or "closed by the server")))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        self._body.append(body)
        if self._size > ANSWER_MAX_BYTES:
            self.close()

    def on_message_complete(self) -> None:
        answer = HttpResponse(self._parser.get_status_code(), self._headers, b"".join(self._body))
        if not self._parser.should_keep_alive():
            self.close()
        waiting, self._answer = self._answer, None
        self._reset()
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)


class HttpClient:
    """Connections to any number of hosts, at most `connections_max` to each; further requests wait for one."""

    def __init__(self, *, connections_max: int = 32) -> None:
        self._connections_max = connections_max
        self._hosts: dict[str, _Host] = {}  # by the beginning of their URLs: scheme, host and port

    async def post(self, url: str, *, content: bytes, headers: Mapping[str, str], timeout: float) -> HttpResponse:
        return await self.request("POST", url, content=content, headers=headers, timeout=timeout)

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str], content: bytes = b"", timeout: float
    ) -> HttpResponse:
        """The complete response within `timeout` seconds. Raises `ConnectionLost` or `TimeoutError`."""
        end = url.find("/", len("https://"))
        origin, target = (url, "/") if end < 0 else (url[:end], url[end:])
        host = self._hosts.get(origin) or self._host(origin)
        lines = [f"{method} {target} HTTP/1.1", f"host: {host.netloc}", f"content-length: {len(content)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        request = "\r\n".join([*lines, "", ""]).encode("latin-1") + content
        async with asyncio.timeout(timeout):
            return await host.exchange(request)

    def _host(self, origin: str) -> "_Host":
        host = self._hosts[origin] = _Host(origin, self._connections_max)
        return host

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for host in self._hosts.values():
            host.close()


class _Host:
    """The connections to one address; the last used one is taken first."""

    def __init__(self, origin: str, connections_max: int) -> None:
        parts = urlsplit(origin)
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self.netloc, self._name = parts.netloc, parts.hostname or ""
        self._port = parts.port or (443 if self._tls else 80)
        self._free = asyncio.Semaphore(connections_max)
        self._idle: deque[_Connection] = deque()

    async def exchange(self, request: bytes) -> HttpResponse:
        async with self._free:
            connection = await self._connection()
            try:
                answer = await connection.exchange(request)
            except BaseException:
                connection.close()
                raise
            if connection.is_open:
                connection.idle_since_s = time.monotonic()
                self._idle.append(connection)
            return answer

    async def _connection(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and time.monotonic() - connection.idle_since_s < IDLE_MAX_S:
                return connection
            connection.close()
        try:
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_connection(_Connection, self._name, self._port, ssl=self._tls)
        except OSError as refused:
            raise ConnectionLost(str(refused)) from refused
        return connection

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()
