"""Limits of a sale: resources that one event cannot have twice, how near each comes to its limit, and what helps.

Also what was never measured: operations of which the sale needs more at once than any measurement had.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from onsale.capacity.coefficients import Coefficients
from onsale.capacity.sale import Moment

RESOURCES = {
    "redis": ("the Redis that has the event", "cores", "arrivals spread by a pre-queue (--first-minute), a longer "
               "room.liveness_window_s (--liveness-s); one event is one hash slot: more nodes help only other events"),
    "uplink": ("the uplink to the fans", "Gbit/s", "a longer room.updates.window_ms (--window-ms), more uplinks"),
    "postgres": ("PostgreSQL", "cores", "a database per service, a pre-queue that spreads arrivals (--first-minute)"),
    "connections": ("connections to PostgreSQL", "", "PgBouncer, a smaller ONSALE_POSTGRES_POOL_MAX"),
    "provider": ("the payment provider", "calls/s", "more minutes, several providers, a higher limit by contract"),
}  # fmt: skip
TESTED_OPERATIONS = {
    "joins a second": "join",
    "holds a second": "hold",
    "orders a second": "order",
    "polls a second": "status",
    "signs of life a second": "sign",
}


@dataclass(frozen=True)
class Limit:
    """How much of a single resource the sale needs; a `share` above 1 is too much."""

    name: str
    needed: float
    limit: float
    unit: str
    remedy: str

    @property
    def share(self) -> float:
        return self.needed / self.limit


@dataclass(frozen=True)
class Untested:
    """Something the plan relies on that was measured only up to a smaller number."""

    name: str
    planned: float
    tested: float


def limits(needs: Mapping[str, float], known: Coefficients) -> tuple[Limit, ...]:
    """All limits; the one that breaks first stands first."""
    every = [
        Limit(RESOURCES[part][0], amount, known[f"{part}.limit"], *RESOURCES[part][1:])
        for part, amount in needs.items()
    ]
    return tuple(sorted(every, key=lambda limit: -limit.share))


def untested(both: tuple[Moment, Moment], known: Coefficients) -> tuple[Untested, ...]:
    """Operations of which the larger of both moments needs more than was measured."""
    needs = {
        name: (max(moment.per_s[operation] for moment in both), known[f"{operation}.tried_per_s"])
        for name, operation in TESTED_OPERATIONS.items()
    }
    needs["places in one line"] = (max(moment.waiting for moment in both), known["places_tried"])
    needs["open streams"] = (max(moment.streams for moment in both), known["streams_tried"])
    return tuple(Untested(name, needed, tested) for name, (needed, tested) in needs.items() if needed > tested)
