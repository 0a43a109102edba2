"""What a fan's browser does to HTTP: tokens as headers, patience with 503 and lost answers, a clock on every call."""

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

import httpx
import orjson

from shared.rpc.http1 import HttpClient

TRIES_MAX = 6
PATIENCE_S = 60.0
LATER = {429, 503}


class Calls:
    """How long each kind of call took, in ms, and how each ended."""

    def __init__(self) -> None:
        self.times_ms: dict[str, list[float]] = defaultdict(list)
        self.endings: Counter[tuple[str, int]] = Counter()

    def note(self, name: str, status: int, seconds: float) -> None:
        self.times_ms[name].append(seconds * 1000)
        self.endings[name, status] += 1

    def percentile_ms(self, name: str, share: float) -> float:
        times = sorted(self.times_ms[name])
        return times[min(len(times) - 1, int(share * len(times)))]

    def summary(self, name: str) -> dict[str, float]:
        p50, p99 = self.percentile_ms(name, 0.5), self.percentile_ms(name, 0.99)
        return {"n": len(self.times_ms[name]), "p50": p50, "p99": p99}


class Browser:
    """The crowd's requests. Every write carries what makes it safe to repeat, so a lost answer is asked for again."""

    def __init__(
        self, wire: HttpClient, streams: httpx.AsyncClient, url: str, calls: Calls, dice: random.Random
    ) -> None:
        self._wire, self._streams, self._url, self._calls, self._dice = wire, streams, url, calls, dice

    async def listen(self, path: str, *, token: str) -> AsyncGenerator[tuple[str, dict[str, Any]]]:
        """What a stream says, as (event, data), until it ends."""
        headers, kind = {"authorization": f"Bearer {token}"}, ""
        async with self._streams.stream("GET", self._url + path, headers=headers, timeout=PATIENCE_S) as stream:
            async for line in stream.aiter_lines():
                if line.startswith("event:"):
                    kind = line[6:].strip()
                elif line.startswith("data:"):
                    yield kind, orjson.loads(line[5:])

    async def press(self, url: str, choice: str) -> None:
        """A button on the provider's page; without a choice the page is left open."""
        if not choice:
            return
        headers = {"content-type": "application/x-www-form-urlencoded"}
        with suppress(ConnectionError, TimeoutError):
            await self._wire.request(
                "POST", url, headers=headers, content=f"choice={choice}".encode(), timeout=PATIENCE_S
            )

    async def ask(
        self, name: str, method: str, path: str, *, token: str | None = None, key: str | None = None, body: Any = None
    ) -> tuple[int, dict[str, Any]]:
        """Status and document; 0 when nothing answered although asked again and again.

        "Not now" (429, 503, and 409 with a time) is waited out as long as it asks for, and longer each time.
        """
        headers = {"content-type": "application/json"}
        if token:
            headers["authorization"] = f"Bearer {token}"
        if key:
            headers["idempotency-key"] = key
        content = b"" if body is None else orjson.dumps(body)
        for attempt in range(TRIES_MAX):
            started = time.perf_counter()
            try:
                url = self._url + path
                answer = await self._wire.request(method, url, headers=headers, content=content, timeout=PATIENCE_S)
            except (ConnectionError, TimeoutError):
                self._calls.note(name, 0, time.perf_counter() - started)
                await asyncio.sleep(self._dice.uniform(0.2, 0.5) * 2**attempt)
                continue
            self._calls.note(name, answer.status_code, time.perf_counter() - started)
            later = answer.status_code in LATER or (answer.status_code == 409 and "retry-after" in answer.headers)
            if not later or attempt == TRIES_MAX - 1:
                return answer.status_code, _document(answer.content)
            wait_s = min(float(answer.headers.get("retry-after", 1)), PATIENCE_S)  # of balancers: seconds, never a date
            await asyncio.sleep(wait_s * self._dice.uniform(1.0, 2.0) * 1.5**attempt)
        return 0, {}


def _document(content: bytes) -> dict[str, Any]:
    """A JSON object; what a balancer says by itself may be anything, and is nothing to a fan."""
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError:
        return {}
    return document if isinstance(document, dict) else {}
