"""A batch of joins to one lane, until each has an outcome: a new place, the place its holder had, or a refusal."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from services.queue.access.access_codes import CodeRefused
from services.queue.line.repository import PlaceId
from services.queue.rooms.model import WaitingRoom
from shared.contracts.queue import JoinRequest

Refused = Literal["line-full", "closed", "sold-out", "unknown-lane", "sign-in-needed"] | CodeRefused


class JoinOutcome(NamedTuple):
    """`joined` with a new place, `known` with the place the holder had, or the reason of a refusal."""

    word: Literal["joined", "known"] | Refused
    place_id: PlaceId | None = None


class InsertResult(NamedTuple):
    """The numbers of the holders whose places are committed, and the holders whose code does not open the lane."""

    join_seqs: dict[str, int]
    refused: dict[str, CodeRefused]


@dataclass
class LaneJoinBatch:
    """Joins to one lane, by holder, and their outcomes so far. `hashes`: of access codes, by holder."""

    room: WaitingRoom
    lane: int
    batch_id: str
    joins: dict[str, JoinRequest]
    hashes: Mapping[str, bytes]
    outcomes: dict[str, JoinOutcome] = field(default_factory=dict)
    call_now: bool = False

    @property
    def pending(self) -> list[JoinRequest]:
        """The joins without an outcome."""
        return [join for holder, join in self.joins.items() if holder not in self.outcomes]

    def add_inserted(self, placed: InsertResult) -> None:
        self.outcomes |= {holder: JoinOutcome("joined", (self.lane, seq)) for holder, seq in placed.join_seqs.items()}
        self.outcomes |= {holder: JoinOutcome(reason) for holder, reason in placed.refused.items()}

    def add_existing(self, place_ids: Mapping[str, PlaceId]) -> None:
        self.outcomes |= known_places(place_ids)

    def reject(self, reason: Refused) -> None:
        self.outcomes |= {join.holder: JoinOutcome(reason) for join in self.pending}


def known_places(place_ids: Mapping[str, PlaceId]) -> dict[str, JoinOutcome]:
    """The outcome of joins whose holder has a place, by holder."""
    return {holder: JoinOutcome("known", place_id) for holder, place_id in place_ids.items()}
