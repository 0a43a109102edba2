"""The client of simulated fans: the library's, with a timer on every attempt."""

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from onsale.client import Client
from onsale.client.connection import NO_ANSWER, Answer, Request
from onsale.history.acknowledgements import Exchange
from onsale.history.transport import History, now_ms
from onsale.server_sent_events import Message
from shared.http.http1 import HttpClient
from shared.routes import at_suite

if TYPE_CHECKING:
    from onsale.simulate.streams import CrowdStreams

ATTEMPTS_MAX = 6
PATIENCE_S = 60.0


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

    def summary(self, name: str) -> dict[str, Any]:
        """How many calls there were, quantiles of their times, and how often each status was answered."""
        answers = {status: n for (call, status), n in sorted(self.endings.items()) if call == name}
        times = {f"p{share}": self.percentile_ms(name, share / 100) for share in (50, 95, 99)}
        return {"n": len(self.times_ms[name]), **times, "answers": answers}


class Browser(Client):
    """The fans' requests and streams, over faster clients than the library's own. Each attempt of a request is counted
    and timed. Without `streams` no fan can hold one.
    """

    def __init__(
        self, http: HttpClient, streams: "CrowdStreams | None", url: str, calls: CallTimes, rng: random.Random,
        *, history: History | None = None, timeout_s: float = PATIENCE_S,
    ) -> None:  # fmt: skip
        super().__init__(url, timeout_s=timeout_s, attempts_max=ATTEMPTS_MAX)
        self._requests, self._streams = http, streams
        self._calls, self._rng, self._history = calls, rng, history

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

    def _stream(self, address: str, headers: dict[str, str]) -> AsyncGenerator[Message]:
        assert self._streams is not None, "this browser opens no streams"
        return self._streams.messages(at_suite(self._url, address), headers)

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


def _exchange(request: Request, answer: Answer | None, sent_ms: int) -> Exchange:
    path, _, query = request.path.partition("?")
    status, body = (answer.status_code, answer.content) if answer else (NO_ANSWER, b"")
    return Exchange(
        request.method, path, query, headers=request.headers, request=request.content, status=status, body=body,
        sent_ms=sent_ms, at_ms=now_ms(),
    )  # fmt: skip
