"""Fans who repeat a failed request, as a page in a browser does, and the longest time without a good answer."""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpx

from tests.support.running.suite import Fan, bearer

T = TypeVar("T")
GONE = 410
PATIENCE_S = 60.0  # a service may take long to start on a busy machine
_silences_s = [0.0]


class NotYet(AssertionError):
    """The request succeeded, but its answer is not yet the expected one."""


def longest_silence_s(*, reset: bool = False) -> float:
    """The longest time for which any fan of this drill had no good answer; `reset` begins the next drill."""
    longest_s = max(_silences_s)
    if reset:
        _silences_s[:] = [0.0]
    return longest_s


async def retry(request: Callable[[], Awaitable[T]], *, within_s: float = PATIENCE_S) -> T:
    """Repeats the request until it succeeds; its answer."""
    since_s = time.monotonic()
    deadline_s = since_s + within_s
    while True:
        try:
            answer = await request()
            _silences_s.append(time.monotonic() - since_s)
            return answer
        except (httpx.HTTPError, AssertionError) as failed:
            if time.monotonic() > deadline_s:
                raise
            if isinstance(failed, NotYet):
                _silences_s.append(time.monotonic() - since_s)
                since_s = time.monotonic()
            await asyncio.sleep(0.1)


class PatientFan(Fan):
    """A fan whose every step can be repeated after a lost answer."""

    def __init__(self, browser: httpx.AsyncClient, event_id: str) -> None:
        super().__init__(browser, event_id)
        self._key, self._holds = str(uuid.uuid4()), 0

    async def join(self) -> dict[str, Any]:
        answer = await self.browser.post(f"{self.path}/queue", headers={"idempotency-key": self._key})
        assert answer.status_code in (200, 201), answer.text
        place: dict[str, Any] = answer.json()
        assert self.join_seq in (0, place["join_seq"]), "another number than before"
        self.token, self.join_seq = place["queue_token"], place["join_seq"]
        return place

    async def reserve(self, **selection: Any) -> httpx.Response:
        """Uses one idempotency key until the answer is a hold or 410, so that a retry never holds twice."""
        key = f"{self._key}.{self._holds}.{uuid.uuid5(uuid.NAMESPACE_OID, repr(sorted(selection.items())))}"
        headers = {**bearer(self.admission), "idempotency-key": key}
        answer = await self.browser.post(f"{self.path}/reservations", json=selection, headers=headers)
        self._holds += answer.is_success or answer.status_code == GONE
        return answer

    async def require_call(self) -> None:
        if (await self.status())["status"] not in ("ready", "admitted"):
            raise NotYet

    async def come_in(self) -> "PatientFan":
        await retry(self.join)
        await retry(self.require_call)
        await retry(self.claim)
        return self

    async def buys(self, method: str = "ok", **selection: Any) -> dict[str, Any]:
        """Holds and pays; the final order."""
        reservation = await retry(lambda: self.hold(**selection))
        order = await retry(lambda: self._ordered(reservation, method))
        return await retry(lambda: self.wait_for_end(order))

    async def _ordered(self, reservation: dict[str, Any], method: str) -> dict[str, Any]:
        if not hasattr(self, "customer"):
            self.customer = {"name": "A fan", "email": f"{uuid.uuid4().hex}@example.org"}
        answer = await self.order(reservation, method=method, customer=self.customer)
        assert answer.status_code == 202, answer.text
        return dict(answer.json())

    async def position(self) -> int:
        answer = await self.browser.get(f"{self.path}/queue/status", headers=bearer(self.token))
        assert answer.status_code == 200, answer.text
        assert answer.json()["join_seq"] == self.join_seq, "a place keeps its number"
        return int(answer.json()["position_in_queue"])
