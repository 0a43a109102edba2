"""What a room does beyond its numbers: parts of the event file's `room:`, kept whole in one column.

The line's frame carries them, so that whoever hears of a room knows its rules.
"""

from typing import Self

from pydantic import AwareDatetime, model_validator

from shared.inputs import Body, PlainText


class PublicValue(Body):
    """What the lottery is drawn with besides the seed: named in advance, known to nobody before `known_at`."""

    what: PlainText
    known_at: AwareDatetime


class LotteryRules(Body):
    """How the pre-queue is drawn; `ordering: lottery` needs them. Who joined before `entry_closes_at` takes part."""

    entry_closes_at: AwareDatetime
    public_value: PublicValue

    @model_validator(mode="after")
    def _closes_first(self) -> Self:
        if self.entry_closes_at >= self.public_value.known_at:
            raise ValueError("entry_closes_at must be before the public value is known")
        return self


class RoomOptions(Body):
    """Every part is optional and has defaults that change nothing."""

    lottery: LotteryRules | None = None
