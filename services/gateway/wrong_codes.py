"""Bounds guessing: when too many wrong codes were tried at an event, no code is looked up there for a moment.

A code is 80 random bits, which no rate could guess; this keeps guessers from costing the ledger anything. Fans without
a code never notice.
"""

from collections import OrderedDict
from time import monotonic

from services.gateway.problems import TooManyWrongCodes

EVENTS_MAX = 1_000
BURST_S = 5.0


class WrongCodes:
    """A bucket per event; each wrong code takes one, and a crowd of them at once takes at most twice what it holds."""

    def __init__(self, *, per_s: float) -> None:
        self._per_s, self._holds = per_s, max(1.0, per_s * BURST_S)
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, event_id: str) -> None:
        """Raises `TooManyWrongCodes` while too many were tried."""
        if self._now(event_id) < 1:
            raise TooManyWrongCodes

    def note(self, event_id: str) -> None:
        """One more was wrong."""
        left = max(self._now(event_id) - 1, -self._holds)
        self._left[event_id] = left, monotonic()
        self._left.move_to_end(event_id)
        if len(self._left) > EVENTS_MAX:
            self._left.popitem(last=False)

    def _now(self, event_id: str) -> float:
        left, at_s = self._left.get(event_id, (self._holds, 0.0))
        return min(self._holds, left + (monotonic() - at_s) * self._per_s)
