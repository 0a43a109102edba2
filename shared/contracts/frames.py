"""What services publish: frames of the latest state on Pub/Sub, and facts that happened in the event log.

Frames are repeated at least every 5 s, so that losing one is harmless. Those of an order are published once, and only
while somebody is subscribed to its channel by name; whoever shows it reads it again when it was silent. `version` is
`max(last + 1, Redis time in ms)`, so it keeps rising after Redis has lost its data. Nothing irreversible is decided
from a frame alone; whatever depends on a stale or not ready frame pauses. The latest frames of an event are kept in a
short log per channel (`shared/messaging/snapshots.py`), from which a subscriber fills a gap.

Events come at least once, in order for each source and on-sale.
"""

import itertools
import secrets
from typing import Any, Literal

from pydantic import Field

from shared.contracts.fields import ServiceMessage
from shared.contracts.room_options import RoomOptions, StoredRoomOptions
from shared.runtime.clock import now_ms

FRAME_REPEAT_S = 5.0
FRAME_STALE_S = 15.0

ReservationState = Literal["pending_payment", "paying", "confirmed", "returned", "expired", "cancelled"]
RoomState = Literal["draft", "prequeue", "open", "paused", "draining", "last_chance", "sold_out", "closed"]


def line_channel(event_id: str) -> str:
    return f"show:{{{event_id}}}:line"


def stock_channel(event_id: str) -> str:
    return f"show:{{{event_id}}}:sections"


def order_channel(reference: str) -> str:
    return f"show:{{{reference}}}:order"


def log_key(channel: str) -> str:
    """The key of the log of a channel's latest frames, in the same cluster slot as the channel."""
    return f"{channel}:log"


def keeps_log(channel: str) -> bool:
    """Whether frames are logged: those of lines, stock and seats are; the state of an order can be read at any time."""
    return not channel.endswith(":order")


def revoked_channel(event_id: str) -> str:
    return f"show:{{{event_id}}}:revoked"


def load_channel(service: str) -> str:
    return f"show:load:{service}"


LINE_CHANNELS = "show:*:line"
REVOKED_CHANNELS = "show:*:revoked"
REVOKED_MAX = 50_000
STOCK_CHANNELS = "show:*:sections"
LOAD_CHANNELS = "show:load:*"


class Frame(ServiceMessage):
    """The fields of every frame. `after` is the version published before it on its channel, by the log."""

    event_id: str
    epoch: int
    version: int
    ready: bool
    at_ms: int
    after: int | None = None


class LaneHead(ServiceMessage):
    """The head and the tail of one lane."""

    head_seq: int
    tail_seq: int


class Throttled(ServiceMessage):
    """Fewer are called than the operator's rate allows: the share that is left, and the reason."""

    factor: float
    reason: Literal["inventory-slow", "inventory-silent", "orders-slow", "orders-silent", "easing", "recovering"]


class RankedLane(ServiceMessage):
    """From which the ranks of one lane are computed: how many numbers are ranked, and the key of their permutation."""

    entrants_n: int
    key: str


class RankingFrame(ServiceMessage):
    """How far another ranking than that of the joins is; `lanes` is empty until it counts and public after it."""

    stage: Literal["open", "closed", "drawn"]
    lanes: dict[int, RankedLane] = {}  # noqa: RUF012 - each has its own


class LineFrame(Frame):
    """The public state of the line; `lanes` includes lane 0.

    `rate_per_s` is the rate in force, of which the overload guard may leave a part (`throttled`); `calls_per_s` and
    `live_ratio` are measured. `full`: every slot is taken, so the line waits for slots and not for the rate.
    `stock_bound`: the free tickets suffice only for fans called or admitted already. `calls_left`: how many calls they
    suffice for, unknown without fresh stock. `called_at_ms`: time of the last call. `config_version`: of the settings
    by which the gatekeeper calls, so that an operator sees them obeyed; 0 while Redis is away.
    """

    state: RoomState
    lanes: dict[int, LaneHead]
    rate_per_s: float
    live_ratio: float = 1.0
    calls_per_s: float | None = None
    message: str | None = None
    queue_opens_at_ms: int | None = None
    sale_starts_at_ms: int | None = None
    liveness_window_s: int = 30
    max_line: int | None = None
    options: StoredRoomOptions = RoomOptions()
    throttled: Throttled | None = None
    full: bool = False
    stock_bound: bool = False
    calls_left: int | None = None
    called_at_ms: int | None = None
    config_version: int = 0
    lottery: RankingFrame | None = None

    @property
    def has_waiting(self) -> bool:
        """Whether there are places above the head of any lane."""
        return any(lane.tail_seq > lane.head_seq for lane in self.lanes.values())

    @property
    def effective_rate_per_s(self) -> float:
        """The rate in force, as far as the overload guard lets it through."""
        guarded = self.throttled is not None and self.throttled.reason != "recovering"
        return round(self.rate_per_s * self.throttled.factor, 3) if guarded and self.throttled else self.rate_per_s


class Revoked(ServiceMessage):
    """Revoked passes, each with its expiry (ms). Published once; a subscriber that missed it asks the queue for all."""

    event_id: str
    passes: list[tuple[str, int]] = Field(max_length=REVOKED_MAX)


class SectionCounts(ServiceMessage):
    """What is left of one section: `available` to everybody, `reserved` for fans with a code or of a lane."""

    section_id: str
    available: int
    held: int
    sold: int
    at_ms: int
    reserved: int = 0


class TypeCounts(ServiceMessage):
    """What is left of a price type of which there is a number in all, by the id under which it is stored."""

    type_id: str
    available: int
    held: int
    sold: int


class StockFrame(Frame):
    """All sections of an event, and how many holders have a live reservation. Two totals that only rise: how often
    somebody who had none took one, and how often somebody's last one ended without a purchase.
    """

    sections: list[SectionCounts]
    types: list[TypeCounts] = []  # noqa: RUF012 - each has its own
    holders_holding: int = 0
    holds_begun: int = 0
    holds_let_go: int = 0

    @property
    def available(self) -> int:
        """Places that somebody can buy."""
        return sum(section.available + section.reserved for section in self.sections)

    @property
    def held(self) -> int:
        return sum(section.held for section in self.sections)


class OrderFrame(Frame):
    """The latest state of one order and its holder; `body` is the answer of `GET /orders/{reference}`. `traceparent`:
    the trace in which the order was made, if it was traced.
    """

    reference: str
    holder: str | None = None
    status: str
    body: dict[str, Any]
    traceparent: str | None = None


class LoadFrame(ServiceMessage):
    """The load of one process, published twice a second and not logged. `rests_ms`: how much later the next frame may
    come, because there was nothing new.

    `work` is how many purchases (holds, orders) were in work since the last frame, without the time in which they wait
    for a payment provider; `average_work` is that over two seconds, in which `done_per_s` were done a second. `p95_ms`
    is the duration of public POSTs over the last seconds, those in flight included; `refused` counts 503 answers of any
    request. A notifier also counts its open streams, and those it rejected since its start. Gateway, queue and notifier
    measure no purchases: their frames say that they are alive.
    """

    service: str = Field(max_length=16)
    process: str = Field(max_length=64)
    at_ms: int
    work: float = 0.0
    average_work: float = 0.0
    done_per_s: float = 0.0
    refused: int = 0
    p95_ms: float = 0.0
    rests_ms: int = 0
    streams_open: int | None = None
    streams_rejected: int | None = None


_process, _numbers = secrets.token_hex(8), itertools.count(1)


class Event(ServiceMessage):
    """The envelope of a fact. `aggregate` names what changed; `version` rises with each change of it."""

    id: str = Field(default_factory=lambda: f"{_process}{next(_numbers):016x}")
    type: str
    event_id: str
    occurred_at_ms: int = Field(default_factory=now_ms)
    actor: str = "system"
    aggregate: str
    version: int = 0
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
