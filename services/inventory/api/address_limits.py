"""How many live holds one client address has at this process: a bound that one address cannot buy the hall up behind.

A hold counts from its request until it is given back or its time is over; one that was bought counts until then, too.
"""

import time
from collections import OrderedDict

from shared.web.problems import TooManyRequests

RETRY_S = 5


class AddressHolds:
    """Reservations by address, in memory; the longest silent address is forgotten first. `most` 0 counts nothing."""

    def __init__(self, *, most: int, keys_max: int) -> None:
        self._most, self._keys_max = most, keys_max
        self._live: OrderedDict[str, dict[str, float]] = OrderedDict()

    def begin(self, address: str | None, reservation_id: str, *, lasts_s: float) -> None:
        """Counts a hold that is being made, or again. Raises `TooManyRequests`."""
        if address is None or not self._most:
            return
        now_s, live = time.monotonic(), self._live.setdefault(address, {})
        self._live.move_to_end(address)
        if reservation_id not in live and len(live) >= self._most:
            live = self._live[address] = {name: until_s for name, until_s in live.items() if until_s > now_s}
            if len(live) >= self._most:
                raise TooManyRequests("Your network holds too much at this moment.", retry_after_s=RETRY_S)
        live[reservation_id] = now_s + lasts_s
        if len(self._live) > self._keys_max:
            self._live.popitem(last=False)

    def end(self, address: str | None, reservation_id: str) -> None:
        """It was refused or given back."""
        if address is not None:
            self._live.get(address, {}).pop(reservation_id, None)
