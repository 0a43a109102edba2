"""What a room does beyond its numbers: parts of the event file's `room:`, kept whole in one column.

The line's frame carries them, so that whoever hears of a room knows its rules.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from shared.contracts.lanes import GENERAL, Lanes
from shared.inputs import Body

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


HASHES_MAX = 1_000_000


def _word(value: Any) -> Any:
    """YAML reads a bare `off` or `on` as a truth value."""
    return {False: "off", True: "on"}[value] if isinstance(value, bool) else value


class Friction(Body):
    """Proof of work before a fan joins: off, always, or once the room is under pressure.

    Pressure is 1 when one gateway process sees `busy_joins_per_s` or `busy_waiting` places wait, whichever comes first;
    the work grows with it from `least_hashes` to `most_hashes`, of which a fan computes half on average.
    """

    proof_of_work: Annotated[Literal["off", "on", "by_pressure"], BeforeValidator(_word)] = "off"
    from_pressure: float = Field(0.25, ge=0, le=1, description="by_pressure: below it nobody works.")
    busy_joins_per_s: float = Field(200, gt=0, le=100_000)
    busy_waiting: int = Field(50_000, ge=1, le=100_000_000)
    least_hashes: int = Field(20_000, ge=1_000, le=HASHES_MAX)
    most_hashes: int = Field(300_000, ge=1_000, le=HASHES_MAX)
    solve_within_s: int = Field(300, ge=30, le=3600)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.least_hashes > self.most_hashes:
            raise ValueError("least_hashes must not be more than most_hashes")
        return self


class RoomOptions(Body):
    """Every part is optional and has defaults that change nothing."""

    rollout_percent: float = Field(100, ge=0, le=100, description="Share of fans who go through the room.")
    gate: GatePart = GatePart()
    entry: Entry = Entry()
    friction: Friction = Friction()
    lanes: Lanes = (GENERAL,)
