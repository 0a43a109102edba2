"""What the line's scripts are told and what they answer, by name."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple


class Allocation(NamedTuple):
    """What a batch was given: `granted` numbers from `first` on, by filling `fill` of the engine."""

    first: int
    granted: int
    fill: int
    member: str


class StatusReply(NamedTuple):
    """Where the engine sees a place: ready, admitted, ended or waiting."""

    word: str
    until_ms: int


class Claim(NamedTuple):
    """What a claim came to: admitted, missed, waiting or ended; `call` counts from 1."""

    word: str
    call: int
    until_ms: int


class TickEvent(NamedTuple):
    """Something the tick did that the ledger does not know yet."""

    number: int
    what: str
    lane: int
    join_seq: int
    call: int
    at_ms: int


class Due(NamedTuple):
    """A session past its end."""

    lane: int
    join_seq: int
    call: int


@dataclass(frozen=True, slots=True)
class Stock:
    """What inventory's frame says, as the tick takes it."""

    available: int = -1
    holders_holding: int = 0
    word: str = "unknown"
    holds_begun: int = 0
    holds_let_go: int = 0
    version: int = 0


class TickReply(NamedTuple):
    """One turn: the room as it is now, what is to be written, whose session is due."""

    state: dict[str, Any]
    changes: list[TickEvent]
    due: list[Due]


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Rising numbers as runs: first and last of each."""
    found: list[tuple[int, int]] = []
    for n in sorted(numbers):
        if found and found[-1][1] + 1 == n:
            found[-1] = (found[-1][0], n)
        else:
            found.append((n, n))
    return found


def change(raw: bytes) -> TickEvent:
    number, what, lane, seq, call, at_ms = raw.decode().split(":")
    return TickEvent(int(number), what, int(lane), int(seq), int(call), int(at_ms))


def due(raw: bytes) -> Due:
    lane, seq, call = raw.split(b":")
    return Due(int(lane), int(seq), int(call))
