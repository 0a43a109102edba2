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

    def reject(self, reason: Refused) -> None:
        self.outcomes |= {join.holder: JoinOutcome(reason) for join in self.pending}


def known_places(place_ids: Mapping[str, PlaceId]) -> dict[str, JoinOutcome]:
    """The outcome of joins whose holder has a place, by holder."""
    return {holder: JoinOutcome("known", place_id) for holder, place_id in place_ids.items()}


def join_seqs(outcomes: Mapping[str, JoinOutcome]) -> set[int]:
    """The numbers of the places among these outcomes."""
    return {outcome.place_id[1] for outcome in outcomes.values() if outcome.place_id}
