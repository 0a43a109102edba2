"""How hard a room is pressed, by new fans a second at this process and by places that wait; the work follows."""

import math
from collections import OrderedDict
from collections.abc import Hashable

from services.gateway.line import Line
from shared.contracts.room_options import FrictionRules

REMEMBERED_S = 10.0


class Arrivals:
    """New fans per second and event, or per address of an event, as a fading count over about ten seconds; the latest
    `events_max` of them.
    """

    def __init__(self, *, events_max: int) -> None:
        self._counts: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()
        self._events_max = events_max

    def note(self, whose: Hashable, *, now_s: float) -> None:
        self._counts[whose] = self._faded(whose, now_s) + 1, now_s
        self._counts.move_to_end(whose)
        if len(self._counts) > self._events_max:
            self._counts.popitem(last=False)

    def per_s(self, whose: Hashable, *, now_s: float) -> float:
        return self._faded(whose, now_s) / REMEMBERED_S

    def _faded(self, whose: Hashable, now_s: float) -> float:
        count, at_s = self._counts.get(whose, (0.0, now_s))
        return count * math.exp((at_s - now_s) / REMEMBERED_S)


def pressure(rules: FrictionRules, line: Line, joins_per_s: float) -> float:
    """From 0 (nobody) to 1 (as busy as the room's rules call busy, or more)."""
    waiting = sum(max(0, at.tail_seq - line.heads[lane]) for lane, at in line.frame.lanes.items())
    return min(1.0, max(joins_per_s / rules.busy_joins_per_s, waiting / rules.busy_waiting))


def crowded(rules: FrictionRules, joins_per_s: float) -> float:
    """The pressure that one address makes: 0 up to its free newcomers, 1 at four times as many."""
    return min(1.0, max(0.0, joins_per_s * REMEMBERED_S / rules.address_joins - 1) / 3)


def hashes_needed(rules: FrictionRules, pressed: float, of_address: float = 0.0) -> int:
    """How many hashes a challenge may take at most; 0 when none is needed."""
    asked = {
        "off": False,
        "on": True,
        "by_pressure": pressed >= rules.from_pressure or of_address > 0,
        "by_address": of_address > 0,
    }
    if not asked[rules.proof_of_work]:
        return 0
    most = of_address if rules.proof_of_work == "by_address" else max(pressed, of_address)
    return rules.least_hashes + round((rules.most_hashes - rules.least_hashes) * most)
