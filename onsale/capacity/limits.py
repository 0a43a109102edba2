"""What breaks first: what cannot be had twice for one event, how near to its limit it comes, and what helps.

And what nobody has tried: a moment that asks for more than was ever measured.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from onsale.capacity.coefficients import Coefficients
from onsale.capacity.sale import Moment

PARTS = {
    "engine": ("the engine that has the event", "cores", "arrivals spread by a pre-queue (--first-minute), a longer "
               "room.liveness_window_s (--liveness-s); one event is one hash slot: more nodes help only other events"),
    "uplink": ("the way out to the fans", "Gbit/s", "a longer room.updates.window_ms (--window-ms), more uplinks"),
    "ledger": ("PostgreSQL", "cores", "a database per service, a pre-queue that spreads arrivals (--first-minute)"),
    "connections": ("connections to PostgreSQL", "", "PgBouncer, a smaller ONSALE_POSTGRES_POOL_MAX"),
    "provider": ("the payment provider", "calls/s", "more minutes, several providers, a higher limit by contract"),
}  # fmt: skip
TRIED = {"joins a second": "join", "holds a second": "hold", "orders a second": "order", "polls a second": "status",
         "signs of life a second": "sign"}  # fmt: skip


@dataclass(frozen=True)
class Limit:
    """How much is asked of something there is one of; `share` above 1 is too much."""

    name: str
    asked: float
    limit: float
    unit: str
    helps: str

    @property
    def share(self) -> float:
        return self.asked / self.limit


@dataclass(frozen=True)
class Untried:
    """Something the plan relies on that was measured only up to less."""

    name: str
    planned: float
    tried: float


def limits(asked: Mapping[str, float], known: Coefficients) -> tuple[Limit, ...]:
    """All of them, the one that breaks first in front."""
    found = [Limit(PARTS[part][0], much, known[f"{part}.limit"], *PARTS[part][1:]) for part, much in asked.items()]
    return tuple(sorted(found, key=lambda limit: -limit.share))


def untried(both: tuple[Moment, Moment], known: Coefficients) -> tuple[Untried, ...]:
    """By operation, the larger of both moments against what was measured at once."""
    asked = {
        name: (max(moment.per_s[operation] for moment in both), known[f"{operation}.tried_per_s"])
        for name, operation in TRIED.items()
    }
    asked["places in one line"] = (max(moment.waiting for moment in both), known["places_tried"])
    asked["open streams"] = (max(moment.streams for moment in both), known["streams_tried"])
    return tuple(Untried(name, much, most) for name, (much, most) in asked.items() if much > most)
