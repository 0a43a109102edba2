"""What is measured: a claim, two sides, and what each heard in its rounds; the ratio compares the medians.

What two sides under load cannot show is a `Finding`: it looks for itself and brings rows of figures.
"""

import statistics
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from bench.harness.load import Heard
from bench.harness.stage import Stage, Turn


@dataclass(frozen=True)
class Target:
    """A side, up and running: where it listens, what to send, and how its ledger is compared with its answers.

    `check` returns the sentences that hold, and raises `Wrong` when one does not. `wanted` is the status of the answers
    that count; `pid` is the server's, where its processor time is to be counted.
    """

    port: int
    requests: Sequence[bytes]
    repeat: bool
    check: Callable[[Heard], Awaitable[list[str]]]
    wanted: int = 201
    pid: int | None = None


class Wrong(Exception):
    """A side was fast but not right: what it answered is not what its ledger holds."""


@dataclass(frozen=True)
class Side:
    """One design; `open` starts it within a turn."""

    name: str
    open: Callable[[Turn], AbstractAsyncContextManager[Target]]


@dataclass(frozen=True)
class Effort:
    """How hard to look: measured seconds of a side's turn, connections, turns; `quick` only tries whether it works."""

    seconds: float = 8
    connections: int = 128
    rounds: int = 3
    quick: bool = False


@dataclass(frozen=True)
class Claim:
    """One line of the summary: what, ours, what stands beside it, how they compare, and what was aimed at."""

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
    """What a finding brought: a table, the claims that follow from it, and the sentences that were checked."""

    headings: tuple[str, ...]
    rows: list[tuple[str, ...]]
    claims: list[Claim]
    checked: list[str] = field(default_factory=list)


@dataclass
class Finding:
    """A claim that is looked into by `find`; `figures` is there once it was."""

    key: str
    title: str
    settings: list[str]
    find: Callable[[Stage, Effort], Awaitable[Figures]]
    figures: Figures | None = None

    @property
    def found(self) -> Figures:
        assert self.figures is not None, "it has been looked into"
        return self.figures


@dataclass(frozen=True)
class Round:
    """One side's turn under load."""

    per_second: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    created: int
    others: dict[int, int]
    broken: int
    checked: list[str]
    per_cpu_s: float | None = None


@dataclass
class Measurement:
    """A claim with two sides, ours first; `rounds` fills up as they take turns.

    `by_cpu` compares answers per second of the servers' processor time: what a core can serve, whoever else uses it.
    `connections` stands above what the person typed, where how many come at once is what is measured.
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
        """Round by round, each pair taken within a minute of each other."""
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


def summed_up(heard: Heard, checked: list[str], *, wanted: int = 201, cpu_s: float | None = None) -> Round:
    """The round's figures; `cpu_s` is what the server spent on all answers. Raises `Wrong` when the answers were not
    those asked for.
    """
    if heard.ran_out:
        raise Wrong("the prepared requests ran out before the time did")
    if not heard.latencies_ms:
        raise Wrong(
            f"nothing was answered {wanted}: {dict(heard.statuses)}, {heard.broken} broken, e.g. {heard.refused[:1]}"
        )
    ordered = sorted(heard.latencies_ms)
    p50, p95, p99 = (ordered[int(len(ordered) * share)] for share in (0.5, 0.95, 0.99))
    others = Counter(heard.statuses)
    del others[wanted]
    per_cpu_s = heard.statuses[wanted] / cpu_s if cpu_s else None
    return Round(
        heard.per_second, p50, p95, p99, heard.statuses[wanted], dict(others), heard.broken, checked, per_cpu_s
    )
