"""Limits guessing of codes: after too many wrong codes, further ones are refused for a while without a look-up.

The key is an event whose fans are unknown, or one fan; other fans are not affected.
"""

from collections import OrderedDict
from math import ceil
from time import monotonic

from shared.runtime.settings import PublicSettings
from shared.web.problems import TooManyWrongCodes

KEPT_MAX = 10_000


class GuessLimiter:
    """A token bucket per key: `at_once` wrong codes in a burst, then `per_s`. Concurrent guesses can overdraw it by at
    most its size.
    """

    def __init__(self, *, per_s: float, at_once: float) -> None:
        self._per_s, self._size = per_s, max(1.0, at_once)
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, key: str) -> None:
        """Raises `TooManyWrongCodes` while the bucket is empty."""
        if (left := self._now(key)) < 1:
            raise TooManyWrongCodes(retry_after_s=ceil((1 - left) / self._per_s))

    def record_failure(self, key: str) -> None:
        """Counts one wrong code."""
        left = max(self._now(key) - 1, -self._size)
        self._left[key] = left, monotonic()
        self._left.move_to_end(key)
        if len(self._left) > KEPT_MAX:
            self._left.popitem(last=False)

    def _now(self, key: str) -> float:
        left, at_s = self._left.get(key, (self._size, 0.0))
        return min(self._size, left + (monotonic() - at_s) * self._per_s)


class AddressGuessLimiter:
    """The same per event and client address, whatever the fan or sign-in. An unknown address is not counted."""

    def __init__(self, settings: PublicSettings) -> None:
        per_minute, at_once = settings.wrong_codes_address_per_minute, settings.wrong_codes_address_at_once
        self._limiter = GuessLimiter(per_s=per_minute / 60, at_once=at_once)

    def check(self, event_id: str, address: str | None) -> None:
        """Raises `TooManyWrongCodes` while the bucket is empty."""
        if address is not None:
            self._limiter.check(f"{event_id} {address}")

    def record_failure(self, event_id: str, address: str | None) -> None:
        """Counts one wrong code."""
        if address is not None:
            self._limiter.record_failure(f"{event_id} {address}")
