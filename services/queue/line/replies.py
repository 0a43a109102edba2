"""Arguments and answers of the line's Lua scripts, with names."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple


class Allocation(NamedTuple):
    """`ok`: the batch has `granted` numbers from `first` on. Otherwise the reason why it has none."""

    batch_id: str
    outcome: Literal["ok", "closed", "sold-out", "line-full", "busy"]
    first: int = 0
    granted: int = 0
    generation: int = 0

    @property
    def member(self) -> str:
        """The batch in flight, as the script recorded it."""
        return f"{self.first}:{self.granted}:{self.batch_id}"


class StatusReply(NamedTuple):
    """The status of a place in Redis; until when (ms) it is ready or admitted."""

    status: Literal["ready", "admitted", "ended", "waiting"]
    until_ms: int


class ClaimReply(NamedTuple):
    """The outcome of a claim; until when it is admitted. `call` counts from 1."""

    outcome: Literal["admitted", "missed", "waiting", "ended"]
    call: int
    until_ms: int


class TickEvent(NamedTuple):
    """A change by a tick that is not yet in the database. `kind` is called, missed or spent (the last miss)."""

    number: int
    kind: str
    lane: int
    join_seq: int
    call: int
    at_ms: int

    @property
    def place_id(self) -> tuple[int, int]:
        return self.lane, self.join_seq


class DueSession(NamedTuple):
    """A session past its end, which Redis had as `until_ms`; `call` is the call it came from."""

    lane: int
    join_seq: int
    call: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class Stock:
    """Inventory's last stock frame, as the tick takes it. `level` is plenty, last_chance, sold_out or unknown."""

    available: int = -1
    holders_holding: int = 0
    level: str = "unknown"
    holds_begun: int = 0
    holds_released: int = 0
    version: int = 0


class TickReply(NamedTuple):
    """The result of a tick: the room's state, the changes to write to the database, and the sessions that are due."""

    state: dict[str, Any]
    changes: list[TickEvent]
    due: list[DueSession]


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Numbers as runs in ascending order: first and last of each."""
    result: list[tuple[int, int]] = []
    for n in sorted(numbers):
        if result and result[-1][1] + 1 == n:
            result[-1] = (result[-1][0], n)
        else:
            result.append((n, n))
    return result


def parse_tick_event(raw: bytes) -> TickEvent:
    number, kind, lane, seq, call, at_ms = raw.decode().split(":")
    return TickEvent(int(number), kind, int(lane), int(seq), int(call), at_ms=int(at_ms))


def parse_due_session(raw: bytes) -> DueSession:
    return DueSession(*map(int, raw.split(b":")))
