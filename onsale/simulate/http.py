"""What a fan's browser does to HTTP: tokens as headers, patience with 503 and lost answers, a clock on every call."""

import asyncio
import random
import time
from collections import Counter, defaultdict
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx

TRIES_MAX = 6
PATIENCE_S = 60.0


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


def no_cookies() -> CookieJar:
    """A jar that takes nothing: a crowd shares one client, and each fan carries tokens in hand."""
    return CookieJar(DefaultCookiePolicy(allowed_domains=[]))


class Browser:
    """One fan's requests. Every write carries what makes it safe to repeat, so a lost answer is simply asked again."""

    def __init__(self, client: httpx.AsyncClient, calls: Calls, dice: random.Random) -> None:
        self._client, self._calls, self._dice = client, calls, dice

    async def ask(
        self, name: str, method: str, path: str, *, token: str | None = None, key: str | None = None, body: Any = None
    ) -> tuple[int, dict[str, Any]]:
        """Status and document; 0 when nothing answered although asked again and again."""
        headers = {"authorization": f"Bearer {token}"} if token else {}
        if key:
            headers["idempotency-key"] = key
        for attempt in range(TRIES_MAX):
            started = time.perf_counter()
            try:
                response = await self._client.request(method, path, headers=headers, json=body, timeout=PATIENCE_S)
            except httpx.TransportError:
                self._calls.note(name, 0, time.perf_counter() - started)
                await asyncio.sleep(self._dice.uniform(0.2, 0.5) * 2**attempt)
                continue
            self._calls.note(name, response.status_code, time.perf_counter() - started)
            again = response.status_code == 503 or (response.status_code == 409 and "retry-after" in response.headers)
            if not again:
                return response.status_code, response.json() if response.content else {}
            await asyncio.sleep(float(response.headers.get("retry-after", 1)) * self._dice.uniform(0.5, 1.5))
        return 0, {}
