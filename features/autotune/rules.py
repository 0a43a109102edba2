"""The bounds of autotune in a room's `pace`, a part of the event file."""

from typing import Self

from pydantic import Field, model_validator

from shared.contracts.fields import RATE_MIN_PER_S, Body, Switch


class AutotunePace(Body):
    """`autotune` moves the rate within `rate_min` and `rate_max`."""

    autotune: Switch = Field("off", description="Moves the rate within rate_min and rate_max.")
    rate_min: float | None = Field(None, ge=RATE_MIN_PER_S, le=100_000)
    rate_max: float | None = Field(None, ge=RATE_MIN_PER_S, le=100_000)

    @model_validator(mode="after")
    def _has_bounds(self) -> Self:
        if self.autotune != "off" and (self.rate_min is None or self.rate_max is None):
            raise ValueError("autotune needs rate_min and rate_max")
        if self.rate_min is not None and self.rate_max is not None and self.rate_min > self.rate_max:
            raise ValueError("rate_min must not be above rate_max")
        return self
