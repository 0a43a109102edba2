"""What breaks first: what cannot be had twice for one event, how near to its limit it comes, and what helps.

And what nobody has tried: a moment that asks for more than was ever measured.
"""

from dataclasses import dataclass

from onsale.plan.coefficients import Coefficients
from onsale.plan.sale import Moment, Sale

PARTS = {
    "engine": ("the engine that has the event", "cores", "a longer room.liveness_window_s (--liveness-s); one event "
               "is one hash slot, so more nodes help only other events"),
    "uplink": ("the way out to the fans", "Gbit/s", "a longer room.updates.window_ms (--window-ms), more uplinks"),
    "ledger": ("PostgreSQL", "cores", "a database per service, a pre-queue that spreads arrivals (--first-minute)"),
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


def limits(
    sale: Sale, both: tuple[Moment, Moment], known: Coefficients, *, engine: float, ledger: float, gbit_per_s: float
) -> tuple[Limit, ...]:
    """All of them, the one that breaks first in front."""
    asked = {
        "engine": (engine, known["engine_cores"]),
        "uplink": (gbit_per_s, known["uplink_gbit_per_s"]),
        "ledger": (ledger, known["ledger_cores"]),
        "provider": (sale.rate_per_s * sale.buying * known["provider_calls_per_order"], known["provider_calls_per_s"]),
    }
    found = []
    for part, (much, most) in asked.items():
        name, unit, helps = PARTS[part]
        found.append(Limit(name, much, most, unit, helps))
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
