"""The limit of live holds per client address in this process, so that one address cannot hold most of the stock.

A hold counts from its request until it is released or its time is over, also if it was bought meanwhile.
"""

import time
from itertools import takewhile

from cachetools import LRUCache

from shared.web.problems import TooManyRequests

RETRY_S = 5


class AddressHolds:
    """Holds by address, in memory; the least recently used address is dropped first. `most` 0 disables the limit."""

    def __init__(self, *, most: int, keys_max: int) -> None:
        self._most = most
        self._live: LRUCache[str, dict[str, float]] = LRUCache(keys_max)

    def add(self, address: str | None, reservation_id: str, *, lasts_s: float) -> None:
        """Counts a hold, once per reservation. Raises `TooManyRequests`."""
        if address is None or not self._most:
            return
        now_s, live = time.monotonic(), self._live.setdefault(address, {})
        for name in list(takewhile(lambda name: live[name] <= now_s, live)):  # the oldest are first
            del live[name]
        if reservation_id not in live and len(live) >= self._most:
            live = self._live[address] = {name: until_s for name, until_s in live.items() if until_s > now_s}
            if len(live) >= self._most:
                raise TooManyRequests(
                    "Your network has too many holds. Try again when some have ended.", retry_after_s=RETRY_S
                )
        live[reservation_id] = now_s + lasts_s

    def discard(self, address: str | None, reservation_id: str) -> None:
        """Uncounts a hold that was denied or released."""
        if address is not None:
            self._live.get(address, {}).pop(reservation_id, None)
