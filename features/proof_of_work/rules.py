"""The rules of proof of work in a room's part of the event file."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from shared.contracts.admin.checks import Check, suspicious
from shared.contracts.fields import Body, switch_value
from shared.contracts.file_parts import LeftOut, RoomRules

HASHES_MAX = 1_000_000


class FrictionRules(Body):
    """Proof of work before a fan joins: never, always, under load, or only from an address that brings many fans at
    once, which also counts in `by_pressure`.

    Pressure is 1 when one gateway process sees `busy_joins_per_s` joins or `busy_waiting` waiting places, whichever
    comes first. The work grows with it from `least_hashes` to `most_hashes`, of which a fan computes half on average.
    """

    proof_of_work: Annotated[Literal["off", "on", "by_pressure", "by_address"], BeforeValidator(switch_value)] = (
        "by_address"
    )
    address_joins: int = Field(
        100, ge=1, le=100_000, description="Joins of one address in ten seconds that need no proof of work."
    )
    from_pressure: float = Field(0.25, ge=0, le=1, description="by_pressure: no proof of work below it.")
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


class RoomFriction(RoomRules):
    """A room's field `friction`."""

    friction: FrictionRules = FrictionRules()

    def left_out_of_rehearsals(self) -> list[LeftOut]:
        why, off = "proof of work: all simulated fans come from one address", {"proof_of_work": "off"}
        on = self.friction.proof_of_work != "off"
        own = [LeftOut("friction", self.friction.model_copy(update=off), why)] if on else []
        return [*super().left_out_of_rehearsals(), *own]

    def findings(self) -> list[Check]:
        advice = "Set friction.proof_of_work: by_address. See docs/use/bot-protection.md."
        off = self.friction.proof_of_work == "off"
        doubt = suspicious("Proof of work", "off: one address takes places as fast as its limit allows", advice)
        return [*super().findings(), *([doubt] if off else [])]


class RoomFrictionPatch(Body):
    """The field `friction` in a change of a room."""

    friction: FrictionRules | None = None
