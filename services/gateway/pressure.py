"""How hard a room is pressed, by new fans a second at this process and by places that wait; the work follows."""

import math
from collections import OrderedDict

from services.gateway.line import Line
from shared.contracts.room_options import FrictionRules

REMEMBERED_S = 10.0


class Arrivals:
    """New fans per second and event, as a fading count over about ten seconds; the latest `events_max` events."""

    def __init__(self, *, events_max: int) -> None:
        self._counts: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._events_max = events_max

    def note(self, event_id: str, *, now_s: float) -> None:
        self._counts[event_id] = self._faded(event_id, now_s) + 1, now_s
        self._counts.move_to_end(event_id)
        if len(self._counts) > self._events_max:
            self._counts.popitem(last=False)

    def per_s(self, event_id: str, *, now_s: float) -> float:
        return self._faded(event_id, now_s) / REMEMBERED_S

    def _faded(self, event_id: str, now_s: float) -> float:
        count, at_s = self._counts.get(event_id, (0.0, now_s))
        return count * math.exp((at_s - now_s) / REMEMBERED_S)


def pressure(rules: FrictionRules, line: Line, joins_per_s: float) -> float:
    """From 0 (nobody) to 1 (as busy as the room's rules call busy, or more)."""
    waiting = sum(max(0, at.tail_seq - line.heads[lane]) for lane, at in line.frame.lanes.items())
    return min(1.0, max(joins_per_s / rules.busy_joins_per_s, waiting / rules.busy_waiting))


def hashes_needed(rules: FrictionRules, pressed: float) -> int:
    """How many hashes a challenge may take at most; 0 when none is needed."""
    if rules.proof_of_work == "off" or (rules.proof_of_work == "by_pressure" and pressed < rules.from_pressure):
        return 0
    return rules.least_hashes + round((rules.most_hashes - rules.least_hashes) * pressed)
