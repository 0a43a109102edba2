"""What the fans of the night saw, second by second, and whether it keeps what the suite promises."""

import time
from array import array
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from onsale.simulate.observations import Observations

CHECKOUT = ("pass", "hold", "quote", "order", "order status")
BURST = ("join", "hold", "order")


def doubles() -> "array[float]":
    """An empty array of numbers with fractions."""
    return array("d")


@dataclass
class Calls:
    """The calls of one name: how long each took from when its fan wanted it, and how much of that it was not sent, in
    ms, and the statuses of the answers (0: the connection broke).
    """

    took_ms: "array[float]" = field(default_factory=doubles)
    unsent_ms: "array[float]" = field(default_factory=doubles)
    statuses: Counter[int] = field(default_factory=Counter)

    @property
    def server_errors(self) -> int:
        return sum(count for status, count in self.statuses.items() if status == 0 or status >= 500)


@dataclass
class Record:
    """Facts as they happen. `per_second` counts what happened in each second since the first fan came. `late_ms` is how
    late the crowd's own timers ran, `connections` the most that were open to a pool.
    """

    observations: Observations = field(default_factory=Observations)
    calls: dict[str, Calls] = field(default_factory=lambda: defaultdict(Calls))
    went_home: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    per_second: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    waits_s: dict[int, "array[float]"] = field(default_factory=lambda: defaultdict(doubles))
    confirmed_after_s: "array[float]" = field(default_factory=doubles)
    late_ms: "array[float]" = field(default_factory=doubles)
    connections: Counter[str] = field(default_factory=Counter)
    streams_most: int = 0
    streams_lost: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    frames: int = 0
    generator_cpu_s: float = 0.0
    began_s: float = field(default_factory=time.monotonic)
    took_s: float = 0.0

    def count(self, what: str, number: int = 1) -> None:
        self.per_second[what][int(time.monotonic() - self.began_s)] += number

    def total(self, what: str) -> int:
        return self.per_second[what].total()

    def answered(self, name: str, status: int, took_s: float, *, unsent_s: float) -> None:
        calls = self.calls[name]
        calls.took_ms.append(took_s * 1000)
        calls.unsent_ms.append(unsent_s * 1000)
        calls.statuses[status] += 1

    def joined(self, join_seq: int) -> None:
        self.observations.joined_at_place(join_seq)
        self.count("joined")

    def check_not_overtaken(self, join_seq: int, requested_s: float) -> None:
        self.observations.check_not_overtaken(join_seq, requested_s)

    def called(self, join_seq: int) -> None:
        self.observations.record_call(join_seq, time.monotonic())

    def admitted(self, waited_s: float) -> None:
        self.count("admitted")
        self.waits_s[int(time.monotonic() - self.began_s)].append(waited_s)

    def held(self) -> None:
        self.observations.held += 1
        self.count("held")

    def confirmed(self, after_s: float) -> None:
        self.observations.record_purchase([], 1)
        self.confirmed_after_s.append(after_s)
        self.count("confirmed")

    def informed(self) -> None:
        """A fan without a ticket knows that there is none left."""
        self.count("informed")

    def busiest(self, what: str, seconds: int) -> float:
        """The highest rate per second over so many seconds."""
        counts = self.per_second[what]
        if not counts:
            return 0.0
        return max(sum(counts[s] for s in range(first, first + seconds)) for first in range(max(counts) + 1)) / seconds

    @property
    def checkout_calls(self) -> tuple[int, int]:
        """All calls from the pass to the order's end, and those of them that ended in a 5xx or a broken connection."""
        calls = [self.calls[name] for name in CHECKOUT if name in self.calls]
        return sum(each.statuses.total() for each in calls), sum(each.server_errors for each in calls)
