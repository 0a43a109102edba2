"""A batch of joins to one lane, until each has an outcome: a new place, the place they had, or a refusal."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from services.queue.access.access_codes import CodeRefused
from services.queue.line.repository import PlaceId
from services.queue.rooms.model import WaitingRoom
from shared.contracts.queue import JoinRequest

Refused = Literal["line-full", "closed", "sold-out", "unknown-lane", "sign-in-needed"] | CodeRefused
Outcome = PlaceId | Refused


@dataclass
class LaneJoinBatch:
    """Joins to one lane: `pending` lack an outcome, `existing` had a place. `hashes`: of access codes, by holder."""

    room: WaitingRoom
    lane: int
    batch_id: str
    pending: dict[str, JoinRequest]
    hashes: dict[str, bytes]
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    existing: dict[str, PlaceId] = field(default_factory=dict)
    call_now: bool = False

    def assign(self, place_ids: dict[str, PlaceId]) -> None:
        for holder, place_id in place_ids.items():
            self.outcomes[holder] = place_id
            del self.pending[holder]

    def add_existing(self, place_ids: dict[str, PlaceId]) -> None:
        self.existing.update(place_ids)
        self.assign(place_ids)

    def reject(self, reason: Refused) -> None:
        self.reject_some(dict.fromkeys(self.pending, reason))

    def reject_some(self, reasons: Mapping[str, Refused]) -> None:
        self.outcomes.update(reasons)
        for holder in reasons:
            del self.pending[holder]
