"""How many reservations of one event are written at once: all that came while it sells alone, few beside others.

Whoever comes while a batch is being prepared or answered waits for the whole of it, whichever event it is for.
"""

import time
from collections.abc import Callable

RECENT_S = 1.0


class Portions:
    """Asked by every event before each of its batches."""

    def __init__(self, *, alone_max: int, beside_max: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._alone_max, self._beside_max, self._clock = alone_max, beside_max, clock
        self._sold_s: dict[str, float] = {}
        self._tidied_s = 0.0

    def of(self, event_id: str) -> int:
        """How many this event may write now."""
        now_s = self._clock()
        self._sold_s[event_id] = now_s
        if now_s - self._tidied_s > RECENT_S:
            self._sold_s = {event: at_s for event, at_s in self._sold_s.items() if now_s - at_s <= RECENT_S}
            self._tidied_s = now_s
        return self._beside_max if len(self._sold_s) > 1 else self._alone_max
