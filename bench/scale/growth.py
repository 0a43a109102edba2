"""P9: the cost of one operation when the line, the sections or the listeners are ten times as many."""

import statistics
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from bench.harness.measurement import Claim, Effort, Figures, Finding, Testbed
from bench.scale import growth_line, growth_stock

FLAT_AT_MOST, SECONDS_MAX = 1.3, 4.0
HEADINGS = ("operation", "ten times the", "from", "to", "µs before", "µs at ten times", "ratio")
Cost = dict[str, float]


@dataclass(frozen=True)
class Tenfold:
    """Something that grows tenfold; `cost` answers µs of each operation at a size."""

    operation: str
    sizes: tuple[int, int]
    quick: tuple[int, int]
    cost: Callable[[Testbed, Effort, int], Awaitable[Cost]]


TENFOLDS = (
    Tenfold("line, through gateway and queue", (100_000, 1_000_000), (200, 2_000), growth_line.services_cost),
    Tenfold("line, the tick's script alone", (100_000, 1_000_000), (2_000, 20_000), growth_line.tick_cost),
    Tenfold("sections", (10, 100), (2, 20), growth_stock.hold_cost),
    Tenfold("listeners", (1_000, 10_000), (10, 100), growth_stock.frame_cost_by_listeners),
)


def growth() -> Finding:
    """The finding, before it is measured."""
    return Finding(
        key="P9",
        title="cost of one operation at ten times the size",
        settings=[
            "Cost: processor time of the servers and both engines together, less what they spend at rest, per "
            "answer; of the tick, the time Valkey itself took for the script and its acknowledgement.",
            "Join and status: the ledger holds the line beforehand; new fans join it, fans at its end ask.",
            "Tick: calls 50, or finds that it may call nobody; signs of life as the bitmaps have them.",
            "Hold: reservations through the real inventory, half of them seats and half general admission; 200,000 "
            "tickets in all, in more or fewer sections.",
            "Listeners: streams of the real notifier stay open while reservations are made; a frame is what one "
            "listener was given, paid by the notifier.",
        ],
        find=find,
    )


@dataclass
class Grown:
    """The costs of one operation at both sizes, round by round."""

    tenfold: Tenfold
    sizes: tuple[int, int]
    costs: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def rows(self) -> list[tuple[str, ...]]:
        return [
            (operation, self.tenfold.operation, f"{self.sizes[0]:,}", f"{self.sizes[1]:,}",
             *(f"{_median(pairs, at):,.1f}" for at in (0, 1)), f"{self.ratio(operation):.2f} ×")
            for operation, pairs in self.costs.items()
        ]  # fmt: skip

    def ratio(self, operation: str) -> float:
        pairs = self.costs[operation]
        return _median(pairs, 1) / _median(pairs, 0) if _median(pairs, 0) else 0.0

    def claims(self) -> list[Claim]:
        return [
            Claim(f"P9 {operation} at ten times the {self.tenfold.operation}", f"{_median(pairs, 1):,.0f} µs",
                  f"before {_median(pairs, 0):,.0f} µs", f"{self.ratio(operation):.2f} ×",
                  f"flat: at most {FLAT_AT_MOST}")
            for operation, pairs in self.costs.items()
        ]  # fmt: skip


def _median(pairs: list[tuple[float, float]], at: int) -> float:
    return statistics.median(pair[at] for pair in pairs)


async def find(testbed: Testbed, effort: Effort) -> Figures:
    """Measures the small and the large size alternately."""
    grown = [Grown(tenfold, tenfold.quick if effort.quick else tenfold.sizes) for tenfold in TENFOLDS]
    shorter = Effort(min(effort.seconds, SECONDS_MAX), min(effort.connections, 64), effort.rounds, effort.quick)
    for _ in range(effort.rounds):
        for one in grown:
            small, large = [await one.tenfold.cost(testbed, shorter, size) for size in one.sizes]
            for operation in small:
                one.costs.setdefault(operation, []).append((small[operation], large[operation]))
    rows = [row for one in grown for row in one.rows()]
    return Figures(HEADINGS, rows, [claim for one in grown for claim in one.claims()])
