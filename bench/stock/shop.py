"""What every way of selling stock is asked to do: put up a show, sell until the wishes end, let all holds end, count.

One show at a time: putting one up takes the one before it down.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from bench.harness.pipes import Paced

TICKETS = 2


@dataclass(frozen=True)
class Show:
    """General admission in so many sections of one size."""

    name: str
    sections: int
    each: int

    @property
    def capacity(self) -> int:
        return self.sections * self.each


@dataclass
class Sold:
    """What a run of wishes came to: holds answered yes, all others, and the engines' processor time."""

    paced: Paced = field(default_factory=Paced)
    held: int = 0
    refused: int = 0
    engines_s: float = 0.0

    def more(self, other: "Sold") -> None:
        self.paced.more(other.paced)
        self.held += other.held
        self.refused += other.refused
        self.engines_s += other.engines_s

    @property
    def per_second(self) -> float:
        return self.held / self.paced.seconds

    @property
    def engines_us(self) -> float:
        return self.engines_s * 1_000_000 / max(1, self.held)


class Design(Protocol):
    """One way to sell stock. A wish is the number of a section, and always for two tickets."""

    name: str

    async def put_up(self, show: Show) -> None: ...
    async def sell(self, show: Show, wishes: Iterator[int], contenders: int) -> Sold: ...
    async def kept(self, show: Show) -> int: ...
    async def end_all(self, show: Show) -> None: ...
    async def left(self, show: Show) -> int: ...


def until(wishes: Iterator[int], seconds: float) -> Iterator[int]:
    """Wishes until the time is over."""
    ends_at_s = time.perf_counter() + seconds
    for section in wishes:
        if time.perf_counter() >= ends_at_s:
            return
        yield section
