"""The client of simulated fans: the library's, with a timer on every attempt."""

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress

import aiohttp
from yarl import URL

from onsale.client import Client, Problem
from onsale.client.connection import STREAM_SILENT_MAX_S, Request
from onsale.client.problem import NO_ANSWER, Answer
from onsale.history.exchange import Exchange
from onsale.history.log import History, now_ms
from onsale.server_sent_events import Message, messages
from shared.http.http1 import HttpClient, HttpResponse
from shared.routes import at_suite

ATTEMPTS_MAX = 6
PATIENCE_S = 60.0
LINE_MAX_BYTES = 1024 * 1024  # of a stream


class CallTimes:
    """The duration of each kind of call, in ms, and the status of its answers."""

    def __init__(self) -> None:
        self.times_ms: dict[str, list[float]] = defaultdict(list)
        self.endings: Counter[tuple[str, int]] = Counter()

    def record(self, name: str, status: int, seconds: float) -> None:
        self.times_ms[name].append(seconds * 1000)
        self.endings[name, status] += 1

    def percentile_ms(self, name: str, share: float) -> float:
        times = sorted(self.times_ms[name])
        return times[min(len(times) - 1, int(share * len(times)))]

    def summary(self, name: str) -> dict[str, float]:
        p50, p99 = self.percentile_ms(name, 0.5), self.percentile_ms(name, 0.99)
        return {"n": len(self.times_ms[name]), "p50": p50, "p99": p99}


def stream_session() -> aiohttp.ClientSession:
    """Connections for any number of streams, each closed with its stream."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True), cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False, headers={"accept-encoding": "identity"},
    )  # fmt: skip


class Browser(Client):
    """The fans' requests and streams, over faster clients than the library's own. Each attempt of a request is counted
    and timed. Without `streams` no fan can hold one.
    """

    def __init__(
        self, http: HttpClient, streams: aiohttp.ClientSession | None, url: str, calls: CallTimes, rng: random.Random,
        *, history: History | None = None, timeout_s: float = PATIENCE_S,
    ) -> None:  # fmt: skip
        super().__init__(url, timeout_s=timeout_s, attempts_max=ATTEMPTS_MAX)
        self._requests, self._streams = http, streams
        self._calls, self._rng, self._history = calls, rng, history
        self._stream_timeout = aiohttp.ClientTimeout(total=None, sock_connect=timeout_s, sock_read=STREAM_SILENT_MAX_S)

    async def send(self, request: Request) -> Answer:
        """One attempt; one without an answer counts with status 0, one that is cancelled does not count."""
        started, sent_ms, answer, counts = time.perf_counter(), now_ms(), None, True
        try:
            answer = await self._requests.request(
                request.method, self.address_of(request), headers=request.headers, content=request.content,
                timeout=self._timeout_s,
            )  # fmt: skip
        except asyncio.CancelledError:
            counts = False
            raise
        finally:
            if counts:
                self.count(request, answer, time.perf_counter() - started)
            if self._history is not None:
                self._history.answered(_exchange(request, answer, sent_ms))
        return answer

    async def _stream(self, address: str, headers: dict[str, str]) -> AsyncGenerator[Message]:
        assert self._streams is not None, "this browser opens no streams"
        url = URL(at_suite(self._url, address), encoded=True)
        try:
            async with self._streams.get(
                url, headers=headers, allow_redirects=False, timeout=self._stream_timeout
            ) as answer:
                if answer.status >= 400:
                    fields = {name.lower(): value for name, value in answer.headers.items()}
                    raise Problem.of(HttpResponse(answer.status, fields, await answer.read()))
                async for message in messages(_lines(answer.content)):
                    yield message
        except (aiohttp.ClientError, TimeoutError) as lost:
            raise Problem(NO_ANSWER) from lost

    def address_of(self, request: Request) -> str:
        """Where it is sent."""
        return at_suite(self._url, request.path)

    def count(self, request: Request, answer: Answer | None, seconds: float) -> None:
        """Records an attempt."""
        self._calls.record(request.operation, answer.status_code if answer else NO_ANSWER, seconds)

    async def press_button(self, url: str, choice: str) -> None:
        """Presses a button on the provider's page; without a choice the page is left open."""
        if not choice:
            return
        headers = {"content-type": "application/x-www-form-urlencoded"}
        with suppress(ConnectionError, TimeoutError):
            await self._requests.request(
                "POST", url, headers=headers, content=f"choice={choice}".encode(), timeout=PATIENCE_S
            )


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[str]:
    """Each line as soon as it is there; those that came together are read together."""
    rest = b""
    async for received in content.iter_any():
        *lines, rest = (rest + received).split(b"\n")
        if len(rest) > LINE_MAX_BYTES:
            raise aiohttp.ClientPayloadError("a line of a stream is too long")
        for line in lines:
            yield line.decode().removesuffix("\r")


def _exchange(request: Request, answer: Answer | None, sent_ms: int) -> Exchange:
    path, _, query = request.path.partition("?")
    status, body = (answer.status_code, answer.content) if answer else (NO_ANSWER, b"")
    return Exchange(
        request.method, path, query, headers=request.headers, request=request.content, status=status, body=body,
        sent_ms=sent_ms, at_ms=now_ms(),
    )  # fmt: skip
