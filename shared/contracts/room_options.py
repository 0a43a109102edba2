"""What a room does beyond its numbers: parts of the event file's `room:`, kept whole in one column.

The line's frame carries them, so that whoever hears of a room knows its rules.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import AwareDatetime, BeforeValidator, Field, StringConstraints, model_validator

from shared.contracts.lanes import GENERAL, Lanes
from shared.web.fields import Body, PlainText

SiteOrigin = Annotated[str, StringConstraints(pattern=r"^https?://[a-z0-9.-]{1,253}(:[0-9]{1,5})?$")]
PathPattern = Annotated[
    str, StringConstraints(pattern=r"^/[A-Za-z0-9_.~/-]*(\*[A-Za-z0-9_.~/-]*){0,3}$", max_length=128)
]


class GateRules(Body):
    """The gate in front of another site: where fans wait, where they may be sent back to, what needs no pass."""

    waiting_room: SiteOrigin | None = Field(
        None, description="Where the fan pages are; null: on the site's own host, as a path."
    )
    return_to: list[SiteOrigin] = Field([], max_length=50, description="Sites a fan may be sent back to.")
    let_through: list[PathPattern] = Field(
        [], max_length=50, description="Paths that need no pass; up to three `*` each, any characters."
    )
    on_engine_error: Literal["admit", "wait"] = Field("wait", description="While nobody can be called.")
    admit_on_error_s: int = Field(60, ge=1, le=3600, description="`admit` lasts this long per outage.")


class EntryRules(Body):
    """Who may join. `signed_in_only`: nobody without a JWT of the seller's identity provider."""

    signed_in_only: bool = False


HASHES_MAX = 1_000_000


def _word(value: Any) -> Any:
    """YAML reads a bare `off` or `on` as a truth value."""
    return {False: "off", True: "on"}[value] if isinstance(value, bool) else value


class FrictionRules(Body):
    """Proof of work before a fan joins: off, always, once the room is under pressure, or only of an address that brings
    many fans at once, which also counts in `by_pressure`.

    Pressure is 1 when one gateway process sees `busy_joins_per_s` or `busy_waiting` places wait, whichever comes first;
    the work grows with it from `least_hashes` to `most_hashes`, of which a fan computes half on average.
    """

    proof_of_work: Annotated[Literal["off", "on", "by_pressure", "by_address"], BeforeValidator(_word)] = "by_address"
    address_joins: int = Field(
        100, ge=1, le=100_000, description="Newcomers of one address in ten seconds that are free."
    )
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


Switch = Annotated[Literal["off", "observe", "on"], BeforeValidator(_word)]


class PaceRules(Body):
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


class Updates(Body):
    """How often a browser hears of this event: one frame in this time at most, the first at once."""

    window_ms: int | None = Field(None, ge=0, le=10_000, description="null: as the notifier is set, 250.")


class RoomOptions(Body):
    """Every part is optional and has defaults that change nothing."""

    rollout_percent: float = Field(100, ge=0, le=100, description="Share of fans who go through the room.")
    gate: GateRules = GateRules()
    entry: EntryRules = EntryRules()
    friction: FrictionRules = FrictionRules()
    lanes: Lanes = (GENERAL,)
    pace: PaceRules = PaceRules()
    lottery: LotteryRules | None = None
    updates: Updates = Updates()
