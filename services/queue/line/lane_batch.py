"""The joins of one lane between their arrival and their outcome: a place, the place they had, or a refusal."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from services.queue.access.access_codes import CodeRefused
from services.queue.line.repository import PlaceId
from services.queue.rooms.model import WaitingRoom
from shared.contracts.queue import Join

Refused = Literal["line-full", "closed", "sold-out", "unknown-lane", "sign-in-needed"] | CodeRefused
Outcome = PlaceId | Refused


@dataclass
class LaneJoinBatch:
    """The joins of one lane on their way: `fresh` still have no outcome; `hashes`: the codes some of them came with."""

    room: WaitingRoom
    lane: int
    batch_id: str
    fresh: dict[str, Join]
    hashes: dict[str, bytes]
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    known: dict[str, PlaceId] = field(default_factory=dict)
    call_now: bool = False

    def assign(self, seats: dict[str, PlaceId]) -> None:
        for holder, seat in seats.items():
            self.outcomes[holder] = seat
            del self.fresh[holder]

    def found(self, seats: dict[str, PlaceId]) -> None:
        self.known.update(seats)
        self.assign(seats)

    def reject(self, word: Refused) -> None:
        self.reject_some(dict.fromkeys(self.fresh, word))

    def reject_some(self, words: Mapping[str, Refused]) -> None:
        self.outcomes.update(words)
        for holder in words:
            del self.fresh[holder]
