"""Lanes of a room: fans of one lane are called in their order, and lanes share the calls by weight.

Lane 0 is everybody's. Who stands in a further lane has a code for it, or a claim in the token of his sign-in.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

from pydantic import AfterValidator, AwareDatetime, Field, model_validator

from shared.runtime.clock import from_datetime
from shared.web.fields import Body, PlainText

LANES_MAX = 16


class LaneClaim(Body):
    """A claim of a verified user JWT that opens the lane: `value` itself, or a list that has it."""

    name: PlainText
    value: PlainText | bool | int


class Lane(Body):
    """One lane. Fans may stand in it at any time; from `opens_at` on they are called (null: with the sale)."""

    lane: int = Field(ge=0, lt=LANES_MAX)
    name: PlainText
    weight: int = Field(1, ge=1, le=1000)
    opens_at: AwareDatetime | None = None
    code_required: bool = False
    claim: LaneClaim | None = None
    max_line: int | None = Field(None, ge=1, le=100_000_000)

    @model_validator(mode="after")
    def _has_a_key(self) -> Self:
        if self.lane == 0 and (self.code_required or self.claim):
            raise ValueError("lane 0 is everybody's: it takes no code and no claim")
        if self.lane > 0 and not (self.code_required or self.claim):
            raise ValueError("a further lane needs code_required or a claim, or nobody could stand in it")
        return self

    @property
    def opens_ms(self) -> int:
        """When its calls begin; 0 with the sale."""
        return from_datetime(self.opens_at) if self.opens_at else 0


GENERAL = Lane(lane=0, name="General")


def _whole(lanes: tuple[Lane, ...]) -> tuple[Lane, ...]:
    numbers = [lane.lane for lane in lanes]
    if len(set(numbers)) != len(numbers) or 0 not in numbers:
        raise ValueError("every lane must have a number of its own, and lane 0 must be among them")
    return tuple(sorted(lanes, key=lambda lane: lane.lane))


Lanes = Annotated[tuple[Lane, ...], Field(min_length=1, max_length=LANES_MAX), AfterValidator(_whole)]


def lane_of(claims: Mapping[str, Any] | None, lanes: Sequence[Lane]) -> int:
    """The lane that verified claims open: the one of the greatest weight, of equals the first; else lane 0."""
    if not claims:
        return 0
    opened = [lane for lane in lanes if lane.claim is not None and _has(claims, lane.claim)]
    return max(opened, key=lambda lane: (lane.weight, -lane.lane)).lane if opened else 0


def _has(claims: Mapping[str, Any], claim: LaneClaim) -> bool:
    said = claims.get(claim.name)
    offered = said if isinstance(said, list) else [said]
    return any(type(one) is type(claim.value) and one == claim.value for one in offered)
