"""Requests and responses of the queue's admin API: the waiting room, its audit log."""

from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, Field, StringConstraints

from shared.contracts.fields import RATE_MIN_PER_S, Body, RatePerS, ReasonText
from shared.contracts.file_parts import with_file_parts
from shared.contracts.frames import RoomState, Throttled
from shared.contracts.room_options import (
    EntryRules,
    Lane,
    Lanes,
    PaceRules,
    RoomOptions,
)

ConfiguredState = Literal["draft", "open", "paused", "draining", "closed"]
Message = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$", max_length=500)]
NULLABLE = frozenset({"max_line", "queue_opens_at", "sale_starts_at", "sale_ends_at"})  # fields that a patch may clear


@with_file_parts("room_patch")
class RoomPatch(Body):
    """A change of the room's configuration. Only the fields that are sent change, from the next tick on."""

    rate_per_s: RatePerS | None = None
    burst: int | None = Field(None, ge=1, le=100_000)
    max_active: int | None = Field(None, ge=0, le=1_000_000)
    session_s: int | None = Field(None, ge=10, le=86_400)
    claim_window_s: int | None = Field(None, ge=5, le=3600)
    liveness_window_s: int | None = Field(None, ge=2, le=600)
    max_misses: int | None = Field(None, ge=1, le=100)
    returning_share: float | None = Field(None, ge=0, le=1)
    max_line: int | None = Field(None, ge=1, le=100_000_000)
    stock_coupling: bool | None = None
    queue_opens_at: AwareDatetime | None = None
    sale_starts_at: AwareDatetime | None = None
    sale_ends_at: AwareDatetime | None = None
    entry: EntryRules | None = None
    lanes: Lanes | None = None
    pace: PaceRules | None = None
    reason: ReasonText | None = None


class ActionReason(Body):
    """Why the operator acts, for the audit log."""

    reason: ReasonText | None = None


class QueueMessage(Body):
    """A message to everybody in the line; null removes it."""

    message: Message | None = None
    reason: ReasonText | None = None


class AdmitRequest(Body):
    """How many fans to call beyond the rate. Those who cannot be called now are not called later either."""

    count: int = Field(ge=1, le=2000)
    reason: ReasonText | None = None


class AdmitResult(BaseModel):
    """How many fans were called, of how many requested."""

    called: int
    asked: int


class PlanRequest(Body):
    """Values to try in a capacity plan; a value that is left out is the room's own."""

    rate_per_s: float | None = Field(None, ge=RATE_MIN_PER_S, le=100_000)
    max_active: int | None = Field(None, ge=1, le=1_000_000)


class CapacityPlan(BaseModel):
    """When the present line would be drained, and what limits it. Nothing is changed by a plan.

    `sells_out_at` is when the present line will have bought what is free, at the shares measured so far, and
    `sells_out_between` the earliest and the latest time (null: perhaps never); null if the line is too short for that
    or the stock is not known. `in_vain` of the fans in line then wait without getting anything.
    """

    summary: str
    waiting: int
    expected_calls: int
    rate_per_s: float
    calls_per_s: float
    limiting_factor: Literal["rate", "max_active", "nobody waits", "nothing moves"]
    max_active: int
    slot_s: float | None
    claimed_share: float | None
    drains_in_s: int | None
    drains_at: AwareDatetime | None
    sells_out_at: AwareDatetime | None = None
    sells_out_between: list[AwareDatetime | None] | None = None
    in_vain: int | None = None


class LaneView(Lane):
    """A lane's configuration, its head and tail, and its calls. `contended_calls` were made while every lane had
    somebody to call, as only then the weights decide; `fair_share` is what the lane's weight entitles it to of those.
    """

    head_seq: int
    tail_seq: int
    calls: int
    contended_calls: int
    fair_share: float


class RoomView(RoomOptions, extra="ignore"):
    """A waiting room: its configuration in the database, and the line by its last frame."""

    event_id: str
    version: int
    epoch: int
    state: ConfiguredState
    shown_state: RoomState
    ready: bool
    rate_per_s: float
    burst: int
    max_active: int
    session_s: int
    claim_window_s: int
    liveness_window_s: int
    max_misses: int
    returning_share: float
    max_line: int | None
    tickets_per_order: int
    stock_coupling: bool
    ordering: str
    queue_opens_at: AwareDatetime | None
    sale_starts_at: AwareDatetime | None
    sale_ends_at: AwareDatetime | None
    lanes: dict[int, LaneView]  # type: ignore[assignment]  # by number, each with its progress
    called: int
    active: int
    calls_per_s: float | None
    live_ratio: float
    message: str | None
    effective_rate_per_s: float
    throttled: Throttled | None
    guard_sees: Throttled | None
    autotune_rate_per_s: float | None


class RoomDryRun(Body):
    """The result of a dry run: the event file is valid, and whether applying it would change anything."""

    event_id: str
    changed: bool
    dry_run: Literal[True] = True


class QueueInvariant(BaseModel):
    """One invariant: whether it holds, and the first few violations."""

    invariant: str
    holds: bool
    detail: str


class QueueInvariantReport(BaseModel):
    """All invariants of the queue."""

    invariants: list[QueueInvariant]


class WaitTimes(BaseModel):
    """Seconds from joining to the first call, of all fans who were called."""

    fans: int
    p50_s: float | None
    p95_s: float | None
    longest_s: float | None


class LineFlow(BaseModel):
    """Places since the last reset (`epoch`), each of one fan, and what became of them. `claimed` were admitted,
    `waiting` live and were never called; a place ends as `completed`, `expired` or because the fan left (`left_early`).
    `missed_calls` counts calls.
    """

    event_id: str
    at: AwareDatetime
    epoch: int
    joined: int
    called: int
    claimed: int
    waiting: int
    missed_calls: int
    completed: int
    expired: int
    left_early: int
    wait: WaitTimes
    first_at: AwareDatetime | None
    last_at: AwareDatetime | None
