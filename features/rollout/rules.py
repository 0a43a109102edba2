"""The share of fans who go through the waiting room, in a room's part of the event file, and who is outside it."""

from functools import partial

from pydantic import BaseModel, Field

from shared.contracts.fields import Body
from shared.contracts.file_parts import LeftOut, RoomRules, part_of
from shared.rules.shares import within

Percent = partial(Field, ge=0, le=100)


class RoomRollout(RoomRules):
    """A room's field `rollout_percent`."""

    rollout_percent: float = Percent(100, description="Share of fans who go through the waiting room.")

    def left_out_of_rehearsals(self) -> list[LeftOut]:
        why = "the share of fans who pass the waiting room by: all go through it"
        own = [LeftOut("rollout_percent", 100.0, why)] if self.rollout_percent < 100 else []
        return [*super().left_out_of_rehearsals(), *own]


class RoomRolloutPatch(Body):
    """The field `rollout_percent` in a change of a room."""

    rollout_percent: float | None = Percent(None)


def percent_of(options: BaseModel) -> float:
    """The share of the room with these options."""
    return part_of(options, RoomRollout).rollout_percent


def outside(event_id: str, holder: str, percent: float) -> bool:
    """Whether this holder passes the waiting room by: outside the share of fans that it is rolled out to."""
    return not within("rollout", event_id, holder, percent)
