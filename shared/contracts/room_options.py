"""What a room does beyond its numbers: parts of the event file's `room:`, kept whole in one column.

The line's frame carries them, so that whoever hears of a room knows its rules.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from shared.inputs import Body

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

    friction: Friction = Friction()
