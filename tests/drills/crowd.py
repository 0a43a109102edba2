"""Fans who do not give up: whatever is away for a moment, they ask again, as a page in a browser does."""

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
    """A good answer, and not the one that is waited for."""


def longest_silence_s(*, anew: bool = False) -> float:
    """The longest time for which any fan of this drill asked and had no good answer; `anew` begins the next drill."""
    longest_s = max(_silences_s)
    if anew:
        _silences_s[:] = [0.0]
    return longest_s


async def insist(act: Callable[[], Awaitable[T]], *, within_s: float = PATIENCE_S) -> T:
    """The answer of the first attempt that succeeds."""
    since_s = time.monotonic()
    deadline_s = since_s + within_s
    while True:
        try:
            answer = await act()
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
    """Each step may be asked for again: a lost answer costs nothing."""

    def __init__(self, browser: httpx.AsyncClient, event_id: str) -> None:
        super().__init__(browser, event_id)
        self._key, self._held = str(uuid.uuid4()), 0

    async def join(self) -> dict[str, Any]:
        answer = await self.browser.post(f"{self.path}/queue", headers={"idempotency-key": self._key})
        assert answer.status_code in (200, 201), answer.text
        place: dict[str, Any] = answer.json()
        assert self.join_seq in (0, place["join_seq"]), "another number than before"
        self.token, self.join_seq = place["queue_token"], place["join_seq"]
        return place

    async def reserve(self, **wish: Any) -> httpx.Response:
        """Under one key until it is answered well, or too late to be written: what the fan holds is no other's."""
        key = f"{self._key}.{self._held}.{uuid.uuid5(uuid.NAMESPACE_OID, repr(sorted(wish.items())))}"
        headers = {**bearer(self.admission), "idempotency-key": key}
        answer = await self.browser.post(f"{self.path}/reservations", json=wish, headers=headers)
        self._held += answer.is_success or answer.status_code == GONE
        return answer

    async def called(self) -> None:
        if (await self.status())["status"] not in ("ready", "admitted"):
            raise NotYet

    async def come_in(self) -> "PatientFan":
        await insist(self.join)
        await insist(self.called)
        await insist(self.claim)
        return self

    async def buys(self, method: str = "ok", **wish: Any) -> dict[str, Any]:
        """Holds and pays; how its order ended."""
        reservation = await insist(lambda: self.hold(**wish))
        order = await insist(lambda: self._ordered(reservation, method))
        return await insist(lambda: self.ending(order))

    async def _ordered(self, reservation: dict[str, Any], method: str) -> dict[str, Any]:
        if not hasattr(self, "customer"):
            self.customer = {"name": "A fan", "email": f"{uuid.uuid4().hex}@example.org"}
        answer = await self.order(reservation, method=method, customer=self.customer)
        assert answer.status_code == 202, answer.text
        return dict(answer.json())

    async def position(self) -> int:
        answer = await self.browser.get(f"{self.path}/queue/status", headers=bearer(self.token))
        assert answer.status_code == 200, answer.text
        assert answer.json()["join_seq"] == self.join_seq, "a place is a place"
        return int(answer.json()["position_in_queue"])
