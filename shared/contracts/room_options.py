"""Optional parts of a waiting room in the event file's `room:`, stored whole in one column.

The line's frame carries them, so that every reader of the frame knows the rules of the room. Its lanes are among them:
within a lane fans are called in order; lanes share the calls by weight. Lane 0 is for everybody. A further lane needs
an access code, or a claim in the fan's verified sign-in token.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

from pydantic import AfterValidator, AwareDatetime, Field, model_validator

from shared.contracts.fields import Body, PlainText, Switch
from shared.contracts.file_parts import RoomRules, only_known, with_file_parts
from shared.runtime.clock import from_datetime

LANES_MAX = 16


class LaneClaim(Body):
    """A claim of a verified user JWT that opens the lane: it equals `value`, or is a list that contains it."""

    name: PlainText
    value: PlainText | bool | int


class Lane(Body):
    """One lane. Fans can join it at any time; calls begin at `opens_at` (null: with the sale)."""

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
            raise ValueError("lane 0 is for everybody: it must not have code_required or a claim")
        if self.lane > 0 and not (self.code_required or self.claim):
            raise ValueError("a lane other than 0 needs code_required or a claim")
        return self

    @property
    def opens_ms(self) -> int:
        """When its calls begin, in milliseconds since the epoch; 0: with the sale."""
        return from_datetime(self.opens_at) if self.opens_at else 0


GENERAL = Lane(lane=0, name="General")


def _complete(lanes: tuple[Lane, ...]) -> tuple[Lane, ...]:
    numbers = [lane.lane for lane in lanes]
    if len(set(numbers)) != len(numbers) or 0 not in numbers:
        raise ValueError("lane numbers must be unique and include lane 0")
    return tuple(sorted(lanes, key=lambda lane: lane.lane))


Lanes = Annotated[tuple[Lane, ...], Field(min_length=1, max_length=LANES_MAX), AfterValidator(_complete)]


def lane_of(claims: Mapping[str, Any] | None, lanes: Sequence[Lane]) -> int:
    """The lane that verified claims open: the one of greatest weight, the lowest number among equals; else lane 0."""
    if not claims:
        return 0
    opened = [lane for lane in lanes if lane.claim is not None and _has(claims, lane.claim)]
    return max(opened, key=lambda lane: (lane.weight, -lane.lane)).lane if opened else 0


def _has(claims: Mapping[str, Any], claim: LaneClaim) -> bool:
    value = claims.get(claim.name)
    offered = value if isinstance(value, list) else [value]
    return any(type(one) is type(claim.value) and one == claim.value for one in offered)


class EntryRules(Body):
    """Who may join. `signed_in_only`: only fans with a JWT of the seller's identity provider."""

    signed_in_only: bool = False


@with_file_parts("pace")
class PaceRules(Body):
    """Automatic control of the rate. `guard` lets no more fans in than checkout completes; `observe` only reports what
    `on` would do.
    """

    guard: Switch = "on"
    guard_floor: float = Field(0.1, ge=0.01, le=1, description="Lowest share of the rate that the guard leaves.")
    slow_ms: int = Field(
        1000, ge=50, le=60_000, description="Checkout is slow while it has more in work than it completes in this time."
    )


class Updates(Body):
    """How often a browser receives updates: at most one frame in this time, the first at once."""

    window_ms: int | None = Field(None, ge=0, le=10_000, description="null: the notifier's setting, by default 250.")


@with_file_parts("room")
class RoomOptions(RoomRules):
    """Every part is optional; the defaults change nothing."""

    entry: EntryRules = EntryRules()
    lanes: Lanes = (GENERAL,)
    pace: PaceRules = PaceRules()
    updates: Updates = Updates()


StoredRoomOptions = Annotated[RoomOptions, only_known(RoomOptions)]
