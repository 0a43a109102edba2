"""Measurements: a claim, two sides and the results of their rounds; the ratio compares the medians.

A claim that two sides under load cannot show is a `Finding`: it measures by itself and returns rows of figures.
"""

import math
import statistics
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from bench.harness.load import LoadResult, quantile
from bench.harness.testbed import Testbed, Trial

US_PER_S = 1_000_000
BARE_PER_CPU_S = 25_000.0  # answers of bare uvicorn per second of processor, where the budgets were set


@dataclass(frozen=True)
class Target:
    """A running side: its port, the requests to send, and how its database is compared with its answers.

    `check` returns the sentences that hold, and raises `CheckFailed` when one does not. `expected_status` is that of
    the answers that count.
    """

    port: int
    requests: Sequence[bytes]
    repeat: bool
    check: Callable[[LoadResult], Awaitable[list[str]]]
    expected_status: int = 201


class CheckFailed(Exception):
    """A side answered something else than its database holds."""


@dataclass(frozen=True)
class Side:
    """One design; `open` starts it in a trial."""

    name: str
    open: Callable[[Trial], AbstractAsyncContextManager[Target]]


@dataclass(frozen=True)
class Effort:
    """Measured seconds of a round, connections, and rounds; `quick` only checks that it works."""

    seconds: float = 8
    connections: int = 128
    rounds: int = 3
    quick: bool = False


@dataclass(frozen=True)
class Claim:
    """One line of the summary: what was measured, our figure, the other figures, their ratio, and the aim."""

    what: str
    ours: str
    beside: str
    ratio: str
    aims: str = ""

    def sentence(self) -> str:
        aims = f" ({self.aims})" if self.aims else ""
        return f"{self.what}: {self.ours}, beside {self.beside}: RATIO {self.ratio}{aims}"


@dataclass(frozen=True)
class Figures:
    """The result of a finding: a table, the claims that follow from it, and the checked sentences."""

    headings: tuple[str, ...]
    rows: list[tuple[str, ...]]
    claims: list[Claim]
    checked: list[str] = field(default_factory=list)


@dataclass
class Finding:
    """A claim that `find` measures; `figures` is set afterwards."""

    key: str
    title: str
    settings: list[str]
    find: Callable[[Testbed, Effort], Awaitable[Figures]]
    figures: Figures | None = None

    @property
    def found(self) -> Figures:
        assert self.figures is not None, "it was measured"
        return self.figures


@dataclass(frozen=True)
class Round:
    """The figures of one side's round. `per_cpu_s`: answers that count per second of processor time, that of all
    processes and engines of this side.
    """

    per_second: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    created: int
    other_statuses: dict[int, int]
    broken: int
    checked: list[str]
    per_cpu_s: float


@dataclass
class Measurement:
    """A claim with two sides, ours first; `rounds` grows as they alternate.

    The ratio compares answers per second of processor time, over all processes and engines of a side: what a core can
    serve, whatever else uses it. `budget_us` is what one answer may cost and should cost where bare uvicorn answers
    `BARE_PER_CPU_S`; `bare_per_cpu_s` is what it answers here. `connections` overrides the command line where their
    number is what is measured.
    """

    key: str
    title: str
    unit: str
    at_least: float
    aim: float
    settings: list[str]
    sides: tuple[Side, Side]
    budget_us: tuple[float, float] | None = None
    connections: int | None = None
    rounds: dict[str, list[Round]] = field(default_factory=dict)
    bare_per_cpu_s: float = BARE_PER_CPU_S

    def per_second(self, side: Side) -> float:
        return statistics.median(round_.per_second for round_ in self.rounds[side.name])

    def cost_us(self, side: Side) -> float:
        """µs of processor of one answer."""
        return US_PER_S / statistics.median(round_.per_cpu_s for round_ in self.rounds[side.name])

    @property
    def ratio(self) -> float:
        ours, theirs = self.sides
        return self.cost_us(theirs) / self.cost_us(ours)

    @property
    def ratios(self) -> list[float]:
        """The ratio of each round; its two sides ran within a minute of each other."""
        ours, theirs = (self.rounds[side.name] for side in self.sides)
        return [mine.per_cpu_s / other.per_cpu_s for mine, other in zip(ours, theirs, strict=True)]

    def claim(self) -> Claim:
        """The measurement in one line."""
        ours, theirs = self.sides
        return Claim(
            f"{self.key} {self.title}",
            f"{self.per_second(ours):,.0f}/s, {self.cost_us(ours):,.0f} µs",
            f"{theirs.name} {self.per_second(theirs):,.0f}/s, {self.cost_us(theirs):,.0f} µs",
            f"{self.ratio:{'.2f' if self.ratio < 1 else '.1f'}} ×",
            f"at least {self.at_least:g}, aim {self.aim:g}",
        )

    def claims(self) -> list[Claim]:
        """The comparison, and the budget if there is one."""
        if self.budget_us is None:
            return [self.claim()]
        ours, _ = self.sides
        return [self.claim(), budget_claim(self.title, self.cost_us(ours), self.budget_us, self.bare_per_cpu_s)]


def verdict(*, met: bool) -> str:
    """Whether a figure is as good as it must be at least."""
    return "met" if met else "missed"


def budget_claim(title: str, cost_us: float, budget_us: tuple[float, float], bare_per_cpu_s: float) -> Claim:
    """What one costs in processor time, all in, scaled to a core on which bare uvicorn answers `BARE_PER_CPU_S`."""
    scaled_us, (most_us, aim_us) = cost_us * bare_per_cpu_s / BARE_PER_CPU_S, budget_us
    return Claim(
        f"{title}: processor time of one, all in",
        f"{cost_us:,.0f} µs",
        f"bare uvicorn {US_PER_S / bare_per_cpu_s:.0f} µs",
        f"{scaled_us:,.0f} µs where that is {US_PER_S / BARE_PER_CPU_S:.0f}",
        f"at most {most_us:,g} µs, aim {aim_us:,g}",
    )


def summarize(result: LoadResult, checked: list[str], *, cpu_s: float = math.inf, wanted: int = 201) -> Round:
    """The round's figures; `cpu_s` is what the side spent on all answers, if that is measured. Raises `CheckFailed`
    when there are no answers to measure.
    """
    if result.ran_out:
        raise CheckFailed("the prepared requests ran out before the time did")
    if not result.latencies_ms:
        raise CheckFailed(
            f"nothing was answered {wanted}: {dict(result.statuses)}, {result.broken} broken, e.g. {result.refused[:1]}"
        )
    p50, p95, p99 = (quantile(result.latencies_ms, share) for share in (0.5, 0.95, 0.99))
    others = Counter(result.statuses)
    del others[wanted]
    return Round(
        result.per_second, p50, p95, p99, created=result.statuses[wanted], other_statuses=dict(others),
        broken=result.broken, checked=checked,
        per_cpu_s=result.statuses[wanted] / cpu_s,
    )  # fmt: skip
