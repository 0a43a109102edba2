"""What a room does beyond its numbers: parts of the event file's `room:`, kept whole in one column.

The line's frame carries them, so that whoever hears of a room knows its rules.
"""

from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, Field, StringConstraints, model_validator

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


SiteOrigin = Annotated[str, StringConstraints(pattern=r"^https?://[a-z0-9.-]{1,253}(:[0-9]{1,5})?$")]
PathPattern = Annotated[
    str, StringConstraints(pattern=r"^/[A-Za-z0-9_.~/-]*(\*[A-Za-z0-9_.~/-]*){0,3}$", max_length=128)
]


class GatePart(Body):
    """The gate in front of another site: where fans wait, where they may be sent back to, what needs no pass."""

    waiting_room: SiteOrigin | None = Field(None, description="Where the fan pages are; null: on the site's own host.")
    return_to: list[SiteOrigin] = Field([], max_length=50, description="Sites a fan may be sent back to.")
    let_through: list[PathPattern] = Field(
        [], max_length=50, description="Paths that need no pass; up to three `*` each, any characters."
    )
    on_engine_error: Literal["admit", "wait"] = Field("wait", description="While nobody can be called.")
    admit_on_error_s: int = Field(60, ge=1, le=3600, description="`admit` lasts this long per outage.")


class Entry(Body):
    """Who may join. `signed_in_only`: nobody without a JWT of the seller's identity provider."""

    signed_in_only: bool = False


class RoomOptions(Body):
    """Every part is optional and has defaults that change nothing."""

    rollout_percent: float = Field(100, ge=0, le=100, description="Share of fans who go through the room.")
    gate: GatePart = GatePart()
    entry: Entry = Entry()
    lottery: LotteryRules | None = None
