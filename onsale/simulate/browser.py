"""HTTP as a fan's browser does it: tokens as headers, retries after 503 and lost answers, a timer on every call."""

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

import httpx
import orjson

from onsale.server_sent_events import messages
from shared.rpc.http1 import HttpClient
from shared.web.routes import at_suite

ATTEMPTS_MAX = 6
PATIENCE_S = 60.0
RETRY_STATUSES = {429, 503}


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


class Browser:
    """The fans' requests. Every write has an idempotency key, so a request whose answer was lost is repeated."""

    def __init__(
        self, http: HttpClient, streams: httpx.AsyncClient, url: str, calls: CallTimes, rng: random.Random
    ) -> None:
        self._http, self._streams, self._url, self._calls, self._rng = http, streams, url, calls, rng

    async def listen(self, path: str, *, token: str) -> AsyncGenerator[tuple[str, dict[str, Any]]]:
        """The messages of a stream, as (event, data), until it ends."""
        headers = {"authorization": f"Bearer {token}"}
        async with self._streams.stream(
            "GET", at_suite(self._url, path), headers=headers, timeout=PATIENCE_S
        ) as stream:
            async for kind, data in messages(stream):
                yield kind, orjson.loads(data)

    async def press_button(self, url: str, choice: str) -> None:
        """Presses a button on the provider's page; without a choice the page is left open."""
        if not choice:
            return
        headers = {"content-type": "application/x-www-form-urlencoded"}
        with suppress(ConnectionError, TimeoutError):
            await self._http.request(
                "POST", url, headers=headers, content=f"choice={choice}".encode(), timeout=PATIENCE_S
            )

    async def request(
        self, name: str, method: str, path: str, *, token: str | None = None, key: str | None = None, body: Any = None
    ) -> tuple[int, dict[str, Any]]:
        """Status and document; status 0 when no attempt was answered.

        After 429, 503 and 409 with Retry-After it waits as long as the answer asks for, and longer each time.
        """
        headers = {"content-type": "application/json"}
        if token:
            headers["authorization"] = f"Bearer {token}"
        if key:
            headers["idempotency-key"] = key
        content = b"" if body is None else orjson.dumps(body)
        for attempt in range(ATTEMPTS_MAX):
            started = time.perf_counter()
            try:
                url = at_suite(self._url, path)
                answer = await self._http.request(method, url, headers=headers, content=content, timeout=PATIENCE_S)
            except (ConnectionError, TimeoutError):
                self._calls.record(name, 0, time.perf_counter() - started)
                await asyncio.sleep(self._rng.uniform(0.2, 0.5) * 2**attempt)
                continue
            self._calls.record(name, answer.status_code, time.perf_counter() - started)
            later = answer.status_code in RETRY_STATUSES or (
                answer.status_code == 409 and "retry-after" in answer.headers
            )
            if not later or attempt == ATTEMPTS_MAX - 1:
                return answer.status_code, _document(answer.content)
            wait_s = min(float(answer.headers.get("retry-after", 1)), PATIENCE_S)  # seconds: balancers send no date
            await asyncio.sleep(wait_s * self._rng.uniform(1.0, 2.0) * 1.5**attempt)
        return 0, {}


def _document(content: bytes) -> dict[str, Any]:
    """The answer as a JSON object; empty for anything else, as a load balancer may answer anything."""
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError:
        return {}
    return document if isinstance(document, dict) else {}
