"""What the door answers, for the documentation and for whoever reads it; hot paths write the same fields by hand."""

from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, Field, StringConstraints

from services.gateway.waiting_line.wait_estimate import Reason
from shared.contracts.frames import LaneHead, RoomState, Throttled
from shared.contracts.queue import ExpiredWhy, PlaceState
from shared.web.fields import Body

Code = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]+$", max_length=64)]


LOW = Field(
    None, description="Seconds; the least it may be, unless something changes. Beyond a day this alone is told."
)
HIGH = Field(None, description="Seconds; the most it may be, unless something changes.")


class NothingBody(Body):
    """An empty body or `{}`."""


class JoinBody(Body):
    """What a fan may say who joins: a code that opens a lane. It is never part of an address.

    `from_gate`: a gate sent them here, so the rollout's lot is drawn and says that they wait like everybody.
    """

    code: Code | None = None
    from_gate: bool = False


class JoinedAnswer(BaseModel):
    """A place in the line. The same token also comes as an HttpOnly cookie."""

    queue_token: str | None = Field(description="Null for signed-in fans, whose JWT is enough.")
    join_seq: int
    lane: int
    position_in_queue: int | None = Field(description="Null before a lottery is drawn.")
    rank: int | None = Field(None, description="Only in a lottery: the place that was drawn; null before the draw.")
    estimated_wait_time: int | None = Field(description="Seconds; null while unknown or paused.")
    estimated_wait_low: int | None = LOW
    estimated_wait_high: int | None = HIGH
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
    position_in_queue: int | None = Field(
        description="Never rises; an upper bound, as silent places are skipped. Null before a lottery is drawn."
    )
    rank: int | None = Field(None, description="Only in a lottery: the place that was drawn; null before the draw.")
    estimated_wait_time: int | None = Field(
        description="Seconds; null while unknown, while nobody is called, and beyond a day. Never grows without "
        "`estimate_changed`."
    )
    estimated_wait_low: int | None = LOW
    estimated_wait_high: int | None = HIGH
    estimate_changed: EstimateChanged | None = None
    head_seq: int
    poll_after_ms: int
    message: str | None
    until: AwareDatetime | None = Field(
        None, description="Only when called or admitted: claim the pass before, or the end of the session."
    )
    why: ExpiredWhy | None = Field(
        None, description="Only when expired: the call was not claimed in time, or the session ran out."
    )


class LaneAnswer(LaneHead):
    """A further lane: where it stands, and how one comes into it. From `opens_at` on its fans are called."""

    name: str
    code_required: bool
    opens_at: AwareDatetime | None = None


class LineAnswer(BaseModel):
    """The line as everybody sees it; `head_seq`, `tail_seq` and `opens_at` are lane 0's."""

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
    lottery: Literal["open", "closed", "drawn"] | None = Field(None, description="How far the lottery is, if any.")
    opens_at: AwareDatetime | None = Field(None, description="When the general lane is called, if later than others.")
    lanes: dict[int, LaneAnswer] | None = Field(None, description="Further lanes, if there are any.")


class PassAnswer(BaseModel):
    """Admission to buy. It also comes as an HttpOnly cookie."""

    model_config = {"populate_by_name": True}

    admission: str = Field(alias="pass")
    expires_at: AwareDatetime
    checkout_key: str = Field(description="Stable for this admission; the first half of an Idempotency-Key.")
    status: Literal["admitted"] = "admitted"
