"""Bodies and answers of the gateway's API. The fast routes write the same fields by hand; a test compares the two."""

from typing import Literal

from pydantic import AwareDatetime, BaseModel, Field

from services.gateway.waiting_line.wait_estimate import Reason
from shared.contracts.fields import Body, TypedCode
from shared.contracts.frames import LaneHead, RoomState, Throttled
from shared.contracts.queue import ExpiredWhy, PlaceState

LOW = Field(
    None, description="Seconds: lower bound of the wait unless something changes. Above a day only this bound is given."
)
HIGH = Field(None, description="Seconds: upper bound of the wait unless something changes.")
HEARTBEAT = Field(
    None,
    description="Only far back in a long line: read `GET …/queue`, which a cache may answer, as often as it says, and "
    "ask for the status only so often, which shows that the fan is there. From `near_places` on, and as soon as the "
    "line has no `heartbeat_after_ms`, ask for the status as before.",
)


class EmptyBody(Body):
    """An empty body or `{}`."""


class JoinBody(Body):
    """Sent by a fan who joins. `code` is an access code that opens a lane; it never stands in an address.

    `from_gate`: a protected site redirected this fan, so the rollout has already selected them to wait.
    """

    code: TypedCode = None
    from_gate: bool = False


class JoinedAnswer(BaseModel):
    """A place in the line. The same token is also set as an HttpOnly cookie."""

    queue_token: str | None = Field(description="Null for signed-in fans, whose JWT is enough.")
    join_seq: int
    lane: int
    position_in_queue: int | None = Field(description="Null before a lottery is drawn.")
    rank: int | None = Field(None, description="Only with a lottery: the drawn rank; null before the draw.")
    estimated_wait_time: int | None = Field(description="Seconds; null while unknown or paused.")
    estimated_wait_low: int | None = LOW
    estimated_wait_high: int | None = HIGH
    status: PlaceState
    epoch: int
    poll_after_ms: int = Field(description="When to ask for the status first, unless a stream tells it sooner.")
    heartbeat_after_ms: int | None = HEARTBEAT


class EstimateChanged(BaseModel):
    """Why the estimate grew or was withdrawn, and when."""

    reason: Reason
    at: AwareDatetime


class StatusAnswer(BaseModel):
    """The status of a place. Each request for it is also a heartbeat of the place."""

    status: PlaceState
    join_seq: int
    position_in_queue: int | None = Field(
        description="Never rises; an upper bound, as silent places are skipped. Null before a lottery is drawn."
    )
    rank: int | None = Field(None, description="Only with a lottery: the drawn rank; null before the draw.")
    estimated_wait_time: int | None = Field(
        description="Seconds; null while unknown, while nobody is called, and above a day. Never grows without "
        "`estimate_changed`."
    )
    estimated_wait_low: int | None = LOW
    estimated_wait_high: int | None = HIGH
    estimate_changed: EstimateChanged | None = None
    head_seq: int
    state: RoomState = Field(description="The state of the line, as in `GET …/queue`.")
    poll_after_ms: int = Field(description="When to ask next. Grows with the line, so that its polls stay bounded.")
    heartbeat_after_ms: int | None = HEARTBEAT
    message: str | None
    until: AwareDatetime | None = Field(
        None, description="Only when called: the time to claim the pass by. Only when admitted: the end of the session."
    )
    why: ExpiredWhy | None = Field(
        None, description="Only when expired: the call was not claimed in time, or the session ran out."
    )


class LanePace(LaneHead):
    """The head and the tail of a lane, and what its fans compute their wait from: the positions ahead times the seconds
    per place, and before the sale the time to its start.
    """

    seconds_per_place: float | None = Field(description="Null while nobody can know.")
    estimate_changed: EstimateChanged | None = Field(
        description="Why this last grew or was withdrawn. Nothing new to a fan who joined later, unless it is null."
    )


class LaneAnswer(LanePace):
    """A lane other than the general one. Its fans are called from `opens_at` on."""

    name: str
    code_required: bool
    opens_at: AwareDatetime | None = None


class LineAnswer(LanePace):
    """The public state of the line; what a lane has is that of lane 0."""

    state: RoomState
    epoch: int
    rate_per_s: float
    live_ratio: float
    message: str | None
    throttled: Throttled | None = Field(None, description="Only while the rate is throttled below the configured one.")
    sale_starts_at: AwareDatetime | None
    server_time: AwareDatetime
    poll_after_ms: int = Field(description="When to read it again, unless a stream tells what changed.")
    heartbeat_after_ms: int | None = Field(
        description="Only while the line is long, else null: how long a fan far back who reads the line may leave the "
        "status unasked at most. Ask up to a fifth sooner, at random."
    )
    near_places: int = Field(description="A fan with at most so many places ahead asks for the status.")
    estimate_band: float = Field(
        description="The bounds of a wait are a factor of e to the power of this, and of 1/√position, away."
    )
    lottery: Literal["open", "closed", "drawn"] | None = Field(
        None, description="The lottery's stage, if there is one."
    )
    opens_at: AwareDatetime | None = Field(None, description="When the general lane opens, if later than others.")
    lanes: dict[int, LaneAnswer] | None = Field(None, description="Other lanes than the general one, if any.")


class PassAnswer(BaseModel):
    """The pass to buy with. It is also set as an HttpOnly cookie."""

    model_config = {"populate_by_name": True}

    admission: str = Field(alias="pass")
    expires_at: AwareDatetime
    checkout_key: str = Field(
        description="The same for every claim of this pass; use it as the first half of an Idempotency-Key."
    )
    status: Literal["admitted"] = "admitted"
