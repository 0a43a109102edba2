"""What the operator's console answers: sign-in, events, the figures of one sale, the messages of its stream, approvals.

One record of figures (`Vitals`) is made a second and event, whoever watches. A figure that is not known is null, and
none is interpolated. `ages` says how old the figures of each part are, so that a screen can grey what it cannot trust.
"""

from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, Field, SecretStr, StringConstraints

from shared.contracts.fields import Body, PlainText
from shared.contracts.frames import RoomState
from shared.contracts.queue import PlaceState

Role = Literal["viewer", "operator", "admin"]  # as `shared.security.auth` has it, which commands do not load
Part = Literal["queue", "inventory", "orders", "notifier"]  # whom the console asks
ProcessState = Literal["up", "busy", "silent"]
STREAM_PATH = "/console/api/events/{event_id}/stream"


class SignIn(Body):
    """An operator's key, or the one-time link's secret."""

    key: SecretStr | None = None
    link: SecretStr | None = None


class Session(BaseModel):
    """Who is signed in, and until when."""

    name: str
    role: Role
    expires_at: AwareDatetime


class LineVitals(BaseModel):
    """The line by its last frame and the queue's flow; `live_share` is who still polls or listens, of all who wait."""

    waiting: int | None = None
    head: int | None = None
    tail: int | None = None
    live_share: float | None = None
    called: int | None = None
    claimed: int | None = None
    missed_calls: int | None = None


class RateVitals(BaseModel):
    """Admissions per second: as set, in force, and as measured. `why` says why less is in force than was set."""

    set_per_s: float | None = None
    effective_per_s: float | None = None
    called_per_s: float | None = None
    claimed_per_s: float | None = None
    why: str | None = None


class RoomVitals(BaseModel):
    """The waiting room: its state as fans see it, the version of its settings in force, and the slots in use."""

    state: RoomState | None = None
    version: int | None = None
    active: int | None = None
    max_active: int | None = None
    message: str | None = None


class WaitVitals(BaseModel):
    """Seconds from joining to the first call."""

    p50_s: float | None = None
    p95_s: float | None = None


class SectionVitals(BaseModel):
    """The places of one section."""

    section_id: str
    free: int
    held: int
    sold: int


class StockVitals(BaseModel):
    """The places of all sections by the last frame, and holds by their age."""

    free: int | None = None
    held: int | None = None
    paying: int | None = None
    sold: int | None = None
    total: int | None = None
    oldest_hold_s: float | None = None
    sections: list[SectionVitals] = []


class SellVitals(BaseModel):
    """Tickets sold per minute, and seconds until nothing is left: expected, and the band (`rules/sell_out.py`)."""

    per_min: float | None = None
    out_s: float | None = None
    out_earliest_s: float | None = None
    out_latest_s: float | None = None


class OrderVitals(BaseModel):
    """Orders by status, the steps that are due, and declined payments by reason."""

    pending: int | None = None
    confirmed: int | None = None
    confirmed_per_s: float | None = None
    due: int | None = None
    oldest_due_s: float | None = None
    in_review: int | None = None
    declines: dict[str, int] = {}


class FunnelStep(BaseModel):
    """Fans who came so far: joined, called, claimed, held, ordered, confirmed."""

    name: str
    fans: int | None


class StreamVitals(BaseModel):
    """Open streams of all notifiers, and how old news was when it left them."""

    open: int | None = None
    turned_away: int | None = None


class ProofVitals(BaseModel):
    """Violations found by the last check of the invariants, and when it ended; null before the first."""

    oversold: int | None = None
    duplicates: int | None = None
    inversions: int | None = None
    charged_twice: int | None = None
    at_ms: int | None = None


class Vitals(BaseModel):
    """The figures of one sale at one second. `ages`: seconds since each part was heard, null if never.
    `without_reports`: those of them that answer and run without the feature `reports`; what they would count is null.
    """

    event_id: str
    at_ms: int
    ages: dict[Part, float | None]
    room: RoomVitals = RoomVitals()
    line: LineVitals = LineVitals()
    rate: RateVitals = RateVitals()
    wait: WaitVitals = WaitVitals()
    stock: StockVitals = StockVitals()
    sell: SellVitals = SellVitals()
    orders: OrderVitals = OrderVitals()
    funnel: list[FunnelStep] = []
    streams: StreamVitals = StreamVitals()
    proof: ProofVitals = ProofVitals()
    without_reports: list[Part] = []


class ActiveAlarm(BaseModel):
    """An alarm that fires now, with its entry in the runbook: what it means, what to look at first, what to do. Of
    several alerts of one name `summary` says how many and the first of them.
    """

    name: str
    severity: Literal["critical", "warning", "info"]
    summary: str
    meaning: str
    check_first: str
    do: str
    since_ms: int


class PastAlarm(ActiveAlarm):
    """An alarm that fired, also before anybody watched; `ended_ms` is null while it fires."""

    ended_ms: int | None


class Process(BaseModel):
    """A process that reports its load, and whether it was heard lately."""

    service: str
    process: str
    state: ProcessState
    writes_per_s: float | None
    p95_ms: float | None
    heard_ms: int


class Change(BaseModel):
    """An operator's change, of the audit log of one service."""

    service: str
    id: int
    at_ms: int
    actor: str
    action: str
    subject: str
    reason: str | None
    before: dict[str, Any] | None
    after: dict[str, Any] | None


BODY_MAX_CHARS = 16 * 1024
Header = Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]{1,255}$")]


class NewApproval(Body):
    """A request that needs a second person: `body` is the text that will be sent, with the reason in it."""

    control: str
    body: Annotated[str, StringConstraints(min_length=2, max_length=BODY_MAX_CHARS)]
    idempotency_key: Header | None = None
    if_match: Header | None = None


class ApprovedCall(BaseModel):
    """What the requester sends, with `approval` as the header `Onsale-Approval`."""

    path: str
    body: str
    idempotency_key: str | None
    if_match: str | None
    approval: str


class ApprovalView(BaseModel):
    """Who wants to do what and why, and what a second person decided. `call` is told to the requester alone."""

    id: str
    control: str
    role: Literal["operator", "admin"]
    reason: str
    figures: dict[str, Any]
    requested_by: str
    status: Literal["pending", "approved", "refused"]
    decided_by: str | None
    expires_ms: int
    call: ApprovedCall | None = None


class ApprovalList(BaseModel):
    """The requests of an event that have not expired, oldest first."""

    approvals: Annotated[list[ApprovalView], Field(description="pending and decided ones")]


class Snapshot(BaseModel):
    """All that a screen shows: first on a stream, and whenever the stream cannot continue where it broke off."""

    name: str
    venue: str
    starts_at: AwareDatetime | None
    currency: str | None
    vitals: Vitals
    alarms: list[ActiveAlarm]
    processes: list[Process]
    changes: Annotated[list[Change], Field(description="newest first, at most 200")]
    approvals: Annotated[list[ApprovalView], Field(description="what waits for a second person, or was decided")] = []


class EventOverview(BaseModel):
    """One event in the list of all."""

    event_id: str
    name: str
    state: RoomState | None
    waiting: int | None
    sold: int | None
    total: int | None
    alarms: int


class EventList(BaseModel):
    """The events that the console can show."""

    events: list[EventOverview]


class VitalsHistory(BaseModel):
    """Samples of the past, oldest first: `at_ms`, and for each figure (a path such as `line.waiting`) its values. And
    the alarms that fired in this time, to ten seconds, newest first.
    """

    at_ms: list[int]
    series: dict[str, list[float | None]]
    alarms: list[PastAlarm]


class EstimateChange(BaseModel):
    """Why the wait grew or nobody can say it, and since when."""

    reason: str
    at: AwareDatetime


class FanView(BaseModel):
    """What a fan at a position of the line is told, as the gateway tells it."""

    status: PlaceState
    position_in_queue: int | None
    estimated_wait_low: int | None = None
    estimated_wait_high: int | None = None
    estimate_changed: EstimateChange | None = None
    state: RoomState
    message: str | None


class OfferedProvider(BaseModel):
    """A payment provider that fans may use."""

    name: str


class OfferedProviders(BaseModel):
    """The payment providers that orders offers."""

    providers: list[OfferedProvider]


REHEARSAL_FANS_MAX = 20_000
RehearsalState = Literal["running", "done", "failed", "stopped", "lost"]


class RehearsalStart(Body):
    """How many simulated fans come, and why: written to the audit log of the copy."""

    fans: int = Field(ge=1, le=REHEARSAL_FANS_MAX)
    reason: PlainText


class RehearsalResult(BaseModel):
    """What the fans of a rehearsal observed, and the suite's own check of its invariants: how many were checked, and
    those that do not hold. `failures` says what went wrong.
    """

    fans: int
    seconds: float
    joined: int
    called: int
    held: int
    bought: int
    gave_up: int
    empty_handed: int
    tickets_sold: int
    capacity: int
    oversold: int
    inversions: int
    duplicate_numbers: int
    wait_p50_s: float | None
    wait_p95_s: float | None
    invariants: int
    broken: list[str]
    failures: list[str]


class RehearsalView(BaseModel):
    """The last rehearsal of an event. `lost`: the console that ran it, `process`, has ended without a word. `left_out`
    says what the copy has not; `progress` counts the fans who reached each stage; `detail` says why it failed.
    """

    event_id: str
    state: RehearsalState
    fans: int
    reason: str
    started_by: str
    started_at: AwareDatetime
    ended_at: AwareDatetime | None = None
    process: str
    copy_id: str | None = None
    left_out: list[str] = []
    progress: dict[str, int] = {}
    result: RehearsalResult | None = None
    detail: str | None = None
