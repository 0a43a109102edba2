"""Limits guessing of codes: after too many wrong codes, further ones are refused for a while without a look-up.

The key is an event whose fans are unknown, or one fan; other fans are not affected.
"""

from math import ceil
from time import monotonic

from shared.runtime.settings import PublicSettings
from shared.security.token_buckets import Buckets
from shared.web.problems import TooManyWrongCodes

KEYS_MAX = 10_000


class GuessLimiter:
    """A token bucket per key: `at_once` wrong codes in a burst, then `per_s`. Concurrent guesses can overdraw it by at
    most its size.
    """

    def __init__(self, *, per_s: float, at_once: float) -> None:
        self._buckets = Buckets(per_s=per_s, burst=max(1, int(at_once)), keys_max=KEYS_MAX)

    def check(self, key: str) -> None:
        """Raises `TooManyWrongCodes` while the bucket is empty."""
        if (wait_s := self._buckets.wait_s(key, now_s=monotonic())) > 0:
            raise TooManyWrongCodes(retry_after_s=ceil(wait_s))

    def record_failure(self, key: str) -> None:
        """Counts one wrong code."""
        self._buckets.charge(key, now_s=monotonic())


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
