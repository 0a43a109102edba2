"""What operators send and read."""

from typing import Annotated

from pydantic import AwareDatetime, BaseModel, Field, StringConstraints

from services.queue.rooms import State
from shared.contracts.frames import RoomState
from shared.contracts.lanes import Lane, Lanes
from shared.contracts.room_options import Entry, Friction, GatePart
from shared.inputs import Body

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
    gate: GatePart | None = None
    entry: Entry | None = None
    friction: Friction | None = None
    lanes: Lanes | None = None
    reason: Reason | None = None


NULLABLE = frozenset({"max_line", "queue_opens_at", "sale_starts_at", "sale_ends_at"})


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


class RoomView(BaseModel):
    """A room as operators see it: its configuration as the ledger has it, the line as the last frame showed it."""

    event_id: str
    version: int
    epoch: int
    state: State
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
    entry: Entry
    friction: Friction
    lanes: dict[int, LaneView]
    called: int
    active: int
    calls_per_s: float | None
    live_ratio: float
    message: str | None
    rollout_percent: float
    gate: GatePart
