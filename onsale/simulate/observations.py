"""What the fans observed, and the guarantees it proves: no number twice, nobody overtaken, nothing oversold."""

import bisect
from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Observations:
    """Facts recorded by fans as they happen. Times are monotonic seconds of this process."""

    capacity: int = 0
    joined: int = 0
    called: int = 0
    held: int = 0
    bought: int = 0
    gave_up: int = 0
    empty_handed: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    tickets_sold: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    _numbers: Counter[int] = field(default_factory=Counter)
    _seats: Counter[str] = field(default_factory=Counter)
    _called_at: list[tuple[float, int]] = field(default_factory=list)
    inversions: int = 0

    def joined_at_place(self, join_seq: int) -> None:
        self.joined += 1
        self._numbers[join_seq] += 1

    def record_call(self, join_seq: int, at_s: float) -> None:
        """A fan was called. Keeps the largest number known to be called at each time."""
        self.called += 1
        if not self._called_at or join_seq > self._called_at[-1][1]:
            self._called_at.append((at_s, join_seq))

    def check_not_overtaken(self, join_seq: int, polled_at_s: float) -> None:
        """A fan polled at `polled_at_s` and must still wait: no fan behind may have been called before that."""
        known = bisect.bisect_left(self._called_at, (polled_at_s, 0)) - 1
        if known >= 0 and self._called_at[known][1] > join_seq:
            self.inversions += 1

    def record_purchase(self, seats: list[str], tickets: int) -> None:
        self.bought += 1
        self.tickets_sold += tickets
        self._seats.update(seats)

    @property
    def duplicate_numbers(self) -> int:
        return sum(times - 1 for times in self._numbers.values())

    @property
    def oversold(self) -> int:
        """Seats sold twice, and tickets beyond the capacity."""
        return sum(times - 1 for times in self._seats.values()) + max(0, self.tickets_sold - self.capacity)

    @property
    def failures(self) -> list[str]:
        """What went wrong, or why the simulation proves nothing; empty when all is well."""
        broken = {"oversold": self.oversold, "inversions": self.inversions, "duplicate numbers": self.duplicate_numbers}
        found = [f"{count} {name}" for name, count in broken.items() if count]
        found += [f"{count} times {what}" for what, count in sorted(self.failed.items())]
        if not self.joined:
            found.append("nobody joined: nothing was tried")
        elif not self.bought and self.held:
            found.append("nobody bought anything, although tickets were held")
        return found
