"""The limit of live holds per client address, so that one address cannot hold most of the stock.

A hold counts from its request until it is released or its time is over, also if it was bought meanwhile. A request that
is refused takes back its own count alone: the hold that it repeats, or another request for the same hold, goes on
counting.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile

from cachetools import LRUCache

from shared.errors.problems import TooManyRequests
from shared.runtime.clock import now_ms

RETRY_S = 5


@dataclass(slots=True)
class CountedHold:
    """One hold at one address: until when it counts, whether it is held, and how many requests for it are under way."""

    until_s: float
    is_held: bool = False
    requests_n: int = 0


class AddressHolds:
    """Holds by address, in memory; the least recently used address is dropped first. `most` 0 disables the limit."""

    def __init__(self, *, most: int, keys_max: int) -> None:
        self._most = most
        self._live: LRUCache[str, dict[str, CountedHold]] = LRUCache(keys_max)
        self._address_of: LRUCache[str, str] = LRUCache(keys_max)

    @contextmanager
    def counted(self, address: str | None, reservation_id: str, *, lasts_s: float) -> Iterator[CountedHold]:
        """Counts a hold while it is requested, and afterwards if the request sets `is_held`; once per reservation.
        Raises `TooManyRequests`.
        """
        if address is None or not self._most:
            yield CountedHold(0)
            return
        counted = self._count(address, reservation_id, lasts_s)
        counted.requests_n += 1
        try:
            yield counted
        finally:
            counted.requests_n -= 1
            if not counted.is_held and not counted.requests_n:
                self._forget(address, reservation_id)

    def _count(self, address: str, reservation_id: str, lasts_s: float) -> CountedHold:
        now_s, live = time.monotonic(), self._live.setdefault(address, {})
        for name in list(takewhile(lambda name: live[name].until_s <= now_s, live)):  # the oldest are first
            del live[name]
        if reservation_id not in live and len(live) >= self._most:
            live = self._live[address] = {name: hold for name, hold in live.items() if hold.until_s > now_s}
            if len(live) >= self._most:
                raise TooManyRequests(
                    "Your network has too many holds. Try again when some have ended.", retry_after_s=RETRY_S
                )
        counted = live.setdefault(reservation_id, CountedHold(0))
        counted.until_s = max(counted.until_s, now_s + lasts_s)
        self._address_of.setdefault(reservation_id, address)
        return counted

    def prolong(self, reservation_id: str, *, until_ms: int) -> None:
        """Its time was extended: by its fan, or by the order that pays for it."""
        live = self._live.get(self._address_of.get(reservation_id, ""), {})
        if counted := live.pop(reservation_id, None):
            counted.until_s = max(counted.until_s, time.monotonic() + (until_ms - now_ms()) / 1000)
            live[reservation_id] = counted

    def discard(self, reservation_id: str) -> None:
        """Uncounts a hold that was released."""
        self._forget(self._address_of.get(reservation_id, ""), reservation_id)

    def _forget(self, address: str, reservation_id: str) -> None:
        self._live.get(address, {}).pop(reservation_id, None)
        if self._address_of.get(reservation_id) == address:
            del self._address_of[reservation_id]
