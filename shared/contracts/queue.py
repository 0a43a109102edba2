"""What the queue answers its neighbours: joins, status, claims, leaves and heartbeats, all in batches."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from shared.contracts.fields import ServiceMessage
from shared.contracts.frames import LineFrame, Revoked

if TYPE_CHECKING:
    from shared.rpc import ServiceClient

BATCH_MAX = 1024

ExpiredWhy = Literal["unclaimed", "session"]  # called and nobody came, or the time to choose ran out
PlaceState = Literal["prequeue", "waiting", "ready", "admitted", "completed", "expired", "left"]
REFUSED = ("line-full", "closed", "sold-out", "unknown-lane", "sign-in-needed")  # by the line itself


class JoinRequest(ServiceMessage):
    """One fan at the door. The gateway minted `holder` before asking, so a retried batch finds its own places.

    `may_be_known`: signed in, or came with a key or token of old; looked up in the ledger before taking a number.
    `code`: opens a lane, which then counts instead of `lane`, by a rule of a feature.
    """

    holder: str = Field(min_length=1, max_length=64)
    user_id: str | None = Field(None, max_length=255)
    lane: int = Field(0, ge=0, le=15)
    code: str | None = Field(None, max_length=200)
    may_be_known: bool = False


class JoinBatch(ServiceMessage):
    """`batch_id` is unique per batch and the same in a retry: numbers are allocated to it once."""

    event_id: str
    batch_id: str = Field(min_length=8, max_length=64)
    joins: list[JoinRequest] = Field(min_length=1, max_length=BATCH_MAX)


class Joined(ServiceMessage):
    """`joined` (a new place), `known` (the place this holder already has), or why not: one of `REFUSED`, or the slug of
    a problem of a feature.
    """

    word: str
    lane: int = 0
    join_seq: int = 0
    status: PlaceState = "waiting"


class JoinAnswer(ServiceMessage):
    """One `Joined` per join, in order, and the line as it is now."""

    epoch: int
    joined: list[Joined]
    frame: LineFrame


class PlaceRef(ServiceMessage):
    """A place of the batch's event and epoch, as a queue token names it."""

    lane: int
    join_seq: int
    holder: str


class PlacesQuestion(ServiceMessage):
    """Places of one event and epoch. Raises `StaleEpoch` if the room was reset since."""

    event_id: str
    epoch: int
    places: list[PlaceRef] = Field(min_length=1, max_length=BATCH_MAX)


class HoldersQuestion(ServiceMessage):
    """Holders whose places are wanted, in the line of `epoch_min` or a later one."""

    event_id: str
    epoch_min: int = 0
    holders: list[str] = Field(min_length=1, max_length=BATCH_MAX)


class PlaceFound(ServiceMessage):
    """Where a holder's place is."""

    lane: int
    join_seq: int


class HoldersAnswer(ServiceMessage):
    """One place per holder, in order: the live one, else the last that ended; null for who never joined. Only places of
    signed-in fans are found this way.
    """

    epoch: int
    places: list[PlaceFound | None]


class PlaceStatus(ServiceMessage):
    """`until_ms`: claim deadline when ready, session end when admitted. `why`: of an expired one."""

    status: PlaceState
    until_ms: int | None = None
    why: ExpiredWhy | None = None


class PlaceStatuses(ServiceMessage):
    """One status per place, in order."""

    places: list[PlaceStatus]


class Claimed(ServiceMessage):
    """`admitted` with a pass, or the state that says why not (`waiting`: not called yet)."""

    word: PlaceState
    why: ExpiredWhy | None = None
    admission: str | None = None
    jti: str | None = None
    expires_at_ms: int | None = None
    checkout_key: str | None = None


class Extended(ServiceMessage):
    """What became of a wish for more time: `given`, `before` (that is possible once), or `too-late`; and the pass, with
    its present end.
    """

    outcome: Literal["given", "before", "too-late"]
    claimed: Claimed


class ExtendAnswer(ServiceMessage):
    """One `Extended` per place, in order."""

    extensions: list[Extended]


class ClaimAnswer(ServiceMessage):
    """One `Claimed` per place, in order. Claiming again gives the same pass."""

    claims: list[Claimed]


class LeaveAnswer(ServiceMessage):
    """One state per place, in order; leaving twice is leaving once."""

    places: list[PlaceState]


class ReleaseAnswer(ServiceMessage):
    """One state per place, in order: `completed`, or `admitted` while a reservation lets its session stand."""

    places: list[PlaceState]


class EventHeartbeats(ServiceMessage):
    """Places of one event that were active since the last report: lane → `join_seq` numbers."""

    event_id: str
    epoch: int
    lanes: dict[int, list[int]] = Field(max_length=16)


class HeartbeatReport(ServiceMessage):
    """Sent by each process every `liveness_window_s / 4`, also when empty: without a `final` report, silence means that
    heartbeats may be missing."""

    reporter: str = Field(max_length=64)
    final: bool = False
    events: list[EventHeartbeats] = Field(max_length=1000)


class HeartbeatAnswer(ServiceMessage):
    """When to send the next report, in seconds."""

    report_again_s: float


class RoomQuestion(ServiceMessage):
    """One event's line frame. Raises `UnknownEvent`."""

    event_id: str


class QueueClient:
    """The queue, asked over the wire."""

    def __init__(self, neighbour: "ServiceClient") -> None:
        self._ask = neighbour.call

    async def join(self, batch: JoinBatch) -> JoinAnswer:
        return await self._ask("/joins", batch, JoinAnswer, deadline_s=5.0)

    async def find(self, question: HoldersQuestion) -> HoldersAnswer:
        return await self._ask("/places", question, HoldersAnswer)

    async def status(self, question: PlacesQuestion) -> PlaceStatuses:
        return await self._ask("/status", question, PlaceStatuses)

    async def claim(self, question: PlacesQuestion) -> ClaimAnswer:
        return await self._ask("/claims", question, ClaimAnswer, deadline_s=5.0)

    async def extend(self, question: PlacesQuestion) -> ExtendAnswer:
        return await self._ask("/extensions", question, ExtendAnswer, deadline_s=5.0)

    async def leave(self, question: PlacesQuestion) -> LeaveAnswer:
        return await self._ask("/leaves", question, LeaveAnswer, deadline_s=5.0)

    async def release(self, question: PlacesQuestion) -> ReleaseAnswer:
        return await self._ask("/releases", question, ReleaseAnswer, deadline_s=5.0)

    async def revoked(self, event_id: str) -> Revoked:
        return await self._ask("/rooms/revoked", RoomQuestion(event_id=event_id), Revoked)

    async def report_heartbeats(self, report: HeartbeatReport) -> HeartbeatAnswer:
        return await self._ask("/heartbeats", report, HeartbeatAnswer)

    async def frame(self, event_id: str) -> LineFrame:
        return await self._ask("/rooms/frame", RoomQuestion(event_id=event_id), LineFrame)
