"""What operators send and read."""

from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, Field, StringConstraints

from services.queue.rooms import model
from shared.contracts.frames import RoomState, Throttled
from shared.contracts.lanes import Lane, Lanes
from shared.contracts.room_options import EntryRules, FrictionRules, GateRules, PaceRules, RoomOptions
from shared.web.fields import Body

Reason = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$", max_length=500)]
Message = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$", max_length=500)]


class RoomPatch(Body):
    """Only what is sent changes; the next tick obeys."""

    rate_per_s: float | None = Field(None, ge=0, le=100_000)
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
    rollout_percent: float | None = Field(None, ge=0, le=100)
    gate: GateRules | None = None
    entry: EntryRules | None = None
    friction: FrictionRules | None = None
    lanes: Lanes | None = None
    pace: PaceRules | None = None
    reason: Reason | None = None


NULLABLE = frozenset({"max_line", "queue_opens_at", "sale_starts_at", "sale_ends_at"})


class LotteryDraw(Body):
    """The public value as it was published, spaces around it aside; the lottery is drawn with these very characters."""

    public_value: Annotated[
        str, StringConstraints(strip_whitespace=True, pattern=r"^[^\x00-\x1f]*$", min_length=1, max_length=500)
    ]
    reason: Reason | None = None


class Rehearsed(Body):
    """What a dry run of an event file found: it is acceptable, and whether it would change anything."""

    event_id: str
    changed: bool
    dry_run: Literal[True] = True


class Step(Body):
    """Why the operator does it."""

    reason: Reason | None = None


class Notice(Body):
    """What everybody in the line reads; null takes it away."""

    message: Message | None = None
    reason: Reason | None = None


class LaneView(Lane):
    """A lane, how far it has come, and its calls. `contested` are those of turns in which every lane had somebody to
    call: only there a share can be seen; `due` is the lane's share of them by weight.
    """

    head_seq: int
    tail_seq: int
    calls: int
    contested: int
    due: float


class Admit(Body):
    """Calls beyond the rate, now; what cannot be called now is forgotten."""

    count: int = Field(ge=1, le=2000)
    reason: Reason | None = None


class Admitted(BaseModel):
    """How many were called, of how many asked for."""

    called: int
    asked: int


class PlanRequest(Body):
    """What to try out; what is not said is taken as it is."""

    rate_per_s: float | None = Field(None, gt=0, le=100_000)
    max_active: int | None = Field(None, ge=1, le=1_000_000)


class PlanView(BaseModel):
    """When the line as it is now would be drained, and what holds it up. Nothing is changed by asking."""

    sentence: str
    waiting: int
    expected_calls: int
    rate_per_s: float
    calls_per_s: float
    bound_by: Literal["rate", "max_active", "nobody waits", "nothing moves"]
    max_active: int
    slot_s: float | None
    claimed_share: float | None
    drains_in_s: int | None
    drains_at: AwareDatetime | None


class Change(BaseModel):
    """Who changed what, when and why."""

    id: int
    at: AwareDatetime
    actor: str
    action: str
    reason: str | None
    version: int
    before: dict[str, Any] | None
    after: dict[str, Any]


class Changes(BaseModel):
    """Newest first; `next` is the address of the older ones."""

    changes: list[Change]
    next: str | None


class RoomView(RoomOptions, extra="ignore"):
    """A room as operators see it: its configuration as the ledger has it, the line as the last frame showed it."""

    event_id: str
    version: int
    epoch: int
    state: model.RoomState
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
    lanes: dict[int, LaneView]  # type: ignore[assignment]  # each with how far it has come
    called: int
    active: int
    calls_per_s: float | None
    live_ratio: float
    message: str | None
    effective_rate_per_s: float
    throttled: Throttled | None
    guard_sees: Throttled | None
    autotune_rate_per_s: float | None
