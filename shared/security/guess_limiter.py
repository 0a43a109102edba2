"""Bounds guessing: when somebody tried too many wrong codes, none is looked up for them for a moment.

`who` is whatever is counted by: an event whose fans nobody knows yet, or one fan. Others never notice.
"""

from collections import OrderedDict
from math import ceil
from time import monotonic

from shared.runtime.settings import PublicSettings
from shared.web.problems import TooManyWrongCodes

KEPT_MAX = 10_000


class WrongCodes:
    """A bucket each, of `at_once` wrong codes, that fills by `per_s`; a crowd of them at once takes at most twice what
    it holds.
    """

    def __init__(self, *, per_s: float, at_once: float) -> None:
        self._per_s, self._holds = per_s, max(1.0, at_once)
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, who: str) -> None:
        """Raises `TooManyWrongCodes` while too many were tried."""
        if (left := self._now(who)) < 1:
            raise TooManyWrongCodes(retry_after_s=ceil((1 - left) / self._per_s))

    def note(self, who: str) -> None:
        """One more was wrong."""
        left = max(self._now(who) - 1, -self._holds)
        self._left[who] = left, monotonic()
        self._left.move_to_end(who)
        if len(self._left) > KEPT_MAX:
            self._left.popitem(last=False)

    def _now(self, who: str) -> float:
        left, at_s = self._left.get(who, (self._holds, 0.0))
        return min(self._holds, left + (monotonic() - at_s) * self._per_s)


class WrongCodesOfAddresses:
    """The same per event and client address, which no other key or sign-in refills. Of an unknown address nothing is
    counted.
    """

    def __init__(self, settings: PublicSettings) -> None:
        per_minute, at_once = settings.wrong_codes_address_per_minute, settings.wrong_codes_address_at_once
        self._wrong = WrongCodes(per_s=per_minute / 60, at_once=at_once)

    def check(self, event_id: str, address: str | None) -> None:
        """Raises `TooManyWrongCodes` while too many were tried."""
        if address is not None:
            self._wrong.check(f"{event_id} {address}")

    def note(self, event_id: str, address: str | None) -> None:
        """One more was wrong."""
        if address is not None:
            self._wrong.note(f"{event_id} {address}")
