"""What is measured: a claim, two sides, and what each heard in its rounds; the ratio compares the medians."""

import statistics
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from bench.load import Heard
from bench.stage import Turn


@dataclass(frozen=True)
class Target:
    """A side, up and running: where it listens, what to send, and how its ledger is compared with its answers.

    `check` returns the sentences that hold, and raises `Wrong` when one does not.
    """

    port: int
    requests: Sequence[bytes]
    repeat: bool
    check: Callable[[Heard], Awaitable[list[str]]]


class Wrong(Exception):
    """A side was fast but not right: what it answered is not what its ledger holds."""


@dataclass(frozen=True)
class Side:
    """One design; `open` starts it within a turn."""

    name: str
    open: Callable[[Turn], AbstractAsyncContextManager[Target]]


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


@dataclass
class Measurement:
    """A claim with two sides, ours first; `rounds` fills up as they take turns."""

    key: str
    title: str
    unit: str
    at_least: float
    aim: float
    settings: list[str]
    sides: tuple[Side, Side]
    rounds: dict[str, list[Round]] = field(default_factory=dict)

    def median(self, side: Side) -> float:
        return statistics.median(round_.per_second for round_ in self.rounds[side.name])

    @property
    def ratio(self) -> float:
        ours, theirs = self.sides
        return self.median(ours) / self.median(theirs)

    @property
    def ratios(self) -> list[float]:
        """Round by round, each pair taken within a minute of each other."""
        ours, theirs = (self.rounds[side.name] for side in self.sides)
        return [mine.per_second / other.per_second for mine, other in zip(ours, theirs, strict=True)]


def summed_up(heard: Heard, checked: list[str]) -> Round:
    """The round's figures. Raises `Wrong` when the answers were not those asked for."""
    if heard.ran_out:
        raise Wrong("the prepared requests ran out before the time did")
    if not heard.latencies_ms:
        raise Wrong(f"nothing was created: {dict(heard.statuses)}, {heard.broken} broken, e.g. {heard.refused[:1]}")
    ordered = sorted(heard.latencies_ms)
    p50, p95, p99 = (ordered[int(len(ordered) * share)] for share in (0.5, 0.95, 0.99))
    others = Counter(heard.statuses)
    del others[201]
    created = heard.statuses[201]
    return Round(heard.per_second, p50, p95, p99, created, dict(others), heard.broken, checked)
