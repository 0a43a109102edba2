"""The interface of every design of selling stock: create stock, sell from sections, end all holds, count.

One show at a time: creating one replaces the one before it.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from bench.harness.pipes import Timing

TICKETS = 2


@dataclass(frozen=True)
class Venue:
    """General admission in `sections` sections of `each` tickets."""

    name: str
    sections: int
    each: int

    @property
    def capacity(self) -> int:
        return self.sections * self.each


@dataclass
class SaleResult:
    """The result of a run: holds granted, requests refused, and the processor time of the databases."""

    timing: Timing = field(default_factory=Timing)
    held: int = 0
    refused: int = 0
    database_cpu_s: float = 0.0

    def add(self, other: "SaleResult") -> None:
        self.timing.add(other.timing)
        self.held += other.held
        self.refused += other.refused
        self.database_cpu_s += other.database_cpu_s

    @property
    def per_second(self) -> float:
        return self.held / self.timing.seconds

    @property
    def database_cpu_us(self) -> float:
        return self.database_cpu_s * 1_000_000 / max(1, self.held)


class Design(Protocol):
    """One design of selling stock. Each request names a section by its number and is for two tickets."""

    name: str

    async def create_stock(self, show: Venue) -> None: ...
    async def sell(self, show: Venue, section_numbers: Iterator[int], contenders: int) -> SaleResult: ...
    async def holds_stored(self, show: Venue) -> int: ...
    async def end_all(self, show: Venue) -> None: ...
    async def tickets_left(self, show: Venue) -> int: ...


def until(section_numbers: Iterator[int], seconds: float) -> Iterator[int]:
    """Section numbers until the time is over."""
    ends_at_s = time.perf_counter() + seconds
    for section in section_numbers:
        if time.perf_counter() >= ends_at_s:
            return
        yield section
