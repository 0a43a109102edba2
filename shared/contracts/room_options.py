"""What a room does beyond its numbers: parts of the event file's `room:`, kept whole in one column.

The line's frame carries them, so that whoever hears of a room knows its rules.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from shared.inputs import Body


def _spelled(value: Any) -> Any:
    """YAML reads a bare on or off as a truth value."""
    return {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value


Switch = Annotated[Literal["off", "observe", "on"], BeforeValidator(_spelled)]


class PacePart(Body):
    """How the room looks after its own rate. `guard` throttles while inventory or orders are overloaded; `autotune`
    moves the rate itself, never past `rate_min` and `rate_max`. `observe` only says what `on` would do.
    """

    guard: Switch = "on"
    guard_floor: float = Field(0.1, ge=0.01, le=1, description="The guard never lowers the rate below this share.")
    slow_ms: int = Field(1500, ge=50, le=60_000, description="A hold or an order slower than this (p95) is overload.")
    autotune: Switch = "off"
    rate_min: float | None = Field(None, gt=0, le=100_000)
    rate_max: float | None = Field(None, gt=0, le=100_000)

    @model_validator(mode="after")
    def _has_bounds(self) -> Self:
        if self.autotune != "off" and (self.rate_min is None or self.rate_max is None):
            raise ValueError("autotune needs rate_min and rate_max")
        if self.rate_min is not None and self.rate_max is not None and self.rate_min > self.rate_max:
            raise ValueError("rate_min must not be above rate_max")
        return self


class RoomOptions(Body):
    """Every part is optional and has defaults that change nothing."""

    pace: PacePart = PacePart()
