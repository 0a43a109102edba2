"""What the door answers, for the documentation and for whoever reads it; hot paths write the same fields by hand."""

from typing import Literal

from pydantic import AwareDatetime, BaseModel, Field

from services.gateway.estimate import Reason
from shared.contracts.frames import LaneHead, RoomState, Throttled
from shared.contracts.queue import PlaceState
from shared.inputs import Body


class JoinBody(Body):
    """Nothing yet: an empty body or `{}`."""


class JoinedAnswer(BaseModel):
    """A place in the line. The same token also comes as an HttpOnly cookie."""

    queue_token: str | None
    join_seq: int
    lane: int
    position_in_queue: int
    estimated_wait_time: int | None = Field(description="Seconds; null while unknown or paused.")
    status: PlaceState
    epoch: int


class EstimateChanged(BaseModel):
    """Why the estimate grew or went, and when."""

    reason: Reason
    at: AwareDatetime


class StatusAnswer(BaseModel):
    """How a place stands. Asking is also a sign of life."""

    status: PlaceState
    join_seq: int
    position_in_queue: int = Field(description="Never rises; an upper bound, as silent places are skipped.")
    estimated_wait_time: int | None = Field(
        description="Seconds; null while unknown or paused. Never grows without `estimate_changed`."
    )
    estimate_changed: EstimateChanged | None = None
    head_seq: int
    poll_after_ms: int
    message: str | None


class LineAnswer(BaseModel):
    """The line as everybody sees it; `head_seq` and `tail_seq` are lane 0's."""

    state: RoomState
    epoch: int
    head_seq: int
    tail_seq: int
    rate_per_s: float
    live_ratio: float
    message: str | None
    throttled: Throttled | None = Field(None, description="Only while the rate is below what was set.")
    sale_starts_at: AwareDatetime | None
    server_time: AwareDatetime
    lanes: dict[int, LaneHead] | None = Field(None, description="Further lanes, if there are any.")


class PassAnswer(BaseModel):
    """Admission to buy. It also comes as an HttpOnly cookie."""

    model_config = {"populate_by_name": True}

    admission: str = Field(alias="pass")
    expires_at: AwareDatetime
    checkout_key: str = Field(description="Stable for this admission; the first half of an Idempotency-Key.")
    status: Literal["admitted"] = "admitted"
