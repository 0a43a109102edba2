"""Measurements: a claim, two sides and the results of their rounds; the ratio compares the medians.

A claim that two sides under load cannot show is a `Finding`: it measures by itself and returns rows of figures.
"""

import statistics
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from bench.harness.load import LoadResult, quantile
from bench.harness.testbed import Testbed, Trial


@dataclass(frozen=True)
class Target:
    """A running side: its port, the requests to send, and how its database is compared with its answers.

    `check` returns the sentences that hold, and raises `CheckFailed` when one does not. `expected_status` is that of
    the answers that count; `pid` is the server's, where its processor time is to be counted.
    """

    port: int
    requests: Sequence[bytes]
    repeat: bool
    check: Callable[[LoadResult], Awaitable[list[str]]]
    expected_status: int = 201
    pid: int | None = None


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
    """The figures of one side's round."""

    per_second: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    created: int
    other_statuses: dict[int, int]
    broken: int
    checked: list[str]
    per_cpu_s: float | None = None


@dataclass
class Measurement:
    """A claim with two sides, ours first; `rounds` grows as they alternate.

    `by_cpu` compares answers per second of the servers' processor time: what a core can serve, whatever else uses it.
    `connections` overrides the command line where the number of connections is what is measured.
    """

    key: str
    title: str
    unit: str
    at_least: float
    aim: float
    settings: list[str]
    sides: tuple[Side, Side]
    by_cpu: bool = False
    connections: int | None = None
    rounds: dict[str, list[Round]] = field(default_factory=dict)

    def median(self, side: Side) -> float:
        return statistics.median(self._rates(side))

    @property
    def ratio(self) -> float:
        ours, theirs = self.sides
        return self.median(ours) / self.median(theirs)

    @property
    def ratios(self) -> list[float]:
        """The ratio of each round; its two sides ran within a minute of each other."""
        return [mine / other for mine, other in zip(*map(self._rates, self.sides), strict=True)]

    def _rates(self, side: Side) -> list[float]:
        rounds = self.rounds[side.name]
        return [round_.per_cpu_s or 0.0 for round_ in rounds] if self.by_cpu else [r.per_second for r in rounds]

    def claim(self) -> Claim:
        """The measurement in one line."""
        ours, theirs = self.sides
        per = "s of processor time" if self.by_cpu else "s"
        return Claim(
            f"{self.key} {self.title}",
            f"{self.median(ours):,.0f}/{per}",
            f"{theirs.name} {self.median(theirs):,.0f}/{per}",
            f"{self.ratio:{'.2f' if self.ratio < 1 else '.1f'}} ×",
            f"at least {self.at_least:g}, aim {self.aim:g}",
        )


def summarize(result: LoadResult, checked: list[str], *, wanted: int = 201, cpu_s: float | None = None) -> Round:
    """The round's figures; `cpu_s` is what the server spent on all answers. Raises `CheckFailed` when there
    are no answers to measure.
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
    per_cpu_s = result.statuses[wanted] / cpu_s if cpu_s else None
    return Round(
        result.per_second, p50, p95, p99, created=result.statuses[wanted], other_statuses=dict(others),
        broken=result.broken, checked=checked, per_cpu_s=per_cpu_s,
    )  # fmt: skip
