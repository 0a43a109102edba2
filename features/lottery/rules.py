"""The rules of a lottery in a room's part of the event file."""

from datetime import datetime
from typing import Self

from pydantic import AwareDatetime, model_validator

from shared.contracts.fields import Body, PlainText
from shared.contracts.file_parts import LeftOut, RoomRules


class PublicValue(Body):
    """A public value drawn with besides the seed: named in advance, unknown to anybody before `known_at`."""

    what: PlainText
    known_at: AwareDatetime


class LotteryRules(Body):
    """The rules of the draw, for `ordering: lottery`. Fans who joined before `entry_closes_at` take part."""

    entry_closes_at: AwareDatetime
    public_value: PublicValue

    @model_validator(mode="after")
    def _closes_first(self) -> Self:
        if self.entry_closes_at >= self.public_value.known_at:
            raise ValueError("entry_closes_at must be before the public value is known")
        return self


class RoomLottery(RoomRules):
    """A room's field `lottery`."""

    lottery: LotteryRules | None = None

    @model_validator(mode="after")
    def _lottery_has_rules(self) -> Self:
        ordering: str | None = getattr(self, "ordering", None)  # of a whole room; its options alone have none
        opens_at: datetime | None = getattr(self, "queue_opens_at", None)
        if ordering is not None and (ordering == "lottery") != (self.lottery is not None):
            raise ValueError("ordering: lottery needs the part `lottery`, and the other way round")
        if self.lottery and opens_at and self.lottery.entry_closes_at <= opens_at:
            raise ValueError("lottery.entry_closes_at must be after queue_opens_at")
        return self

    def left_out_of_rehearsals(self) -> list[LeftOut]:
        why = "the lottery: fans are called in the order in which they come"
        own = [LeftOut("lottery", None, why)] if self.lottery else []
        return [*super().left_out_of_rehearsals(), *own]
