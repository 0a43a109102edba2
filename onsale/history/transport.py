"""A transport of httpx that records every answer, and what streams tell, in a history before the client gets it.

The history of a sale as a file of JSON lines: each acknowledgement is in the file before its reader goes on.

Several processes may append to one file: a line is one write. Times are ms since 1970 by the clock of the recording
process: what a line states became true after `sent_ms` and was known at `at_ms`.
"""

import json
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Self

import httpx

from onsale.history.acknowledgements import Exchange, facts_of


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class History:
    """Appends to the file; closing it is optional, as nothing is buffered."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._file)

    def answered(self, exchange: Exchange) -> None:
        """Appends what this answer acknowledges, if anything."""
        for facts in facts_of(exchange):
            self._append({"sent_ms": exchange.sent_ms, "at_ms": exchange.at_ms, **facts})

    def note(self, what: str, **facts: Any) -> None:
        """Appends what else a reader must know: a fault that began or ended, the end of the history."""
        now = now_ms()
        self._append({"sent_ms": now, "at_ms": now, "what": what, **facts})

    def _append(self, line: dict[str, Any]) -> None:
        os.write(self._file, json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() + b"\n")


STREAM = "text/event-stream"
DATA = b"data:"


class RecordingTransport(httpx.AsyncBaseTransport):
    """Around any other transport; its client notices nothing, except that answers that are no streams arrive whole."""

    def __init__(self, inner: httpx.AsyncBaseTransport, history: History) -> None:
        self._inner, self._history = inner, history

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        sent_ms, content = now_ms(), await request.aread()
        address = request.url  # before a balancer changes it

        def record(status: int, body: bytes) -> None:
            self._history.answered(Exchange(
                request.method, address.path, address.query.decode(), headers={**request.headers}, request=content,
                status=status, body=body, sent_ms=sent_ms, at_ms=now_ms(),
            ))  # fmt: skip

        answer = httpx.Response(0)
        try:
            response = await self._inner.handle_async_request(request)
            if response.headers.get("content-type", "").startswith(STREAM):
                response.stream = _Frames(response.stream, lambda data: record(200, data))
                return response
            answer = await _whole(response)
        finally:
            record(answer.status_code, answer.content)
        return answer

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Frames(httpx.AsyncByteStream):
    """The bytes of a stream; each line of data, which is one frame, is recorded as an answer of its own."""

    def __init__(self, stream: Any, record: Callable[[bytes], None]) -> None:
        self._stream, self._record = stream, record

    async def __aiter__(self) -> AsyncIterator[bytes]:
        rest = b""
        async for part in self._stream:
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                if line.startswith(DATA):
                    self._record(line.removeprefix(DATA))
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _whole(response: httpx.Response) -> httpx.Response:
    """The response with its body."""
    try:
        raw = b"".join([chunk async for chunk in response.stream])  # type: ignore[union-attr]
    finally:
        await response.aclose()
    return httpx.Response(response.status_code, headers=response.headers, content=raw, extensions=response.extensions)
