"""Frames: the latest state of one thing, shown on Pub/Sub, repeated at least every 5 s, so that losing one is harmless.

`version` is `max(last + 1, engine time in ms)`: it rises across a loss of the engine. Nothing irreversible is decided
from a frame alone; what depends on a frame that is stale or not ready pauses. An event's latest frames are also kept in
a short log per channel (`shared/redis/snapshots.py`), so that whoever missed one can make it good.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from shared.contracts.room_options import RoomOptions

FRAME_REPEAT_S = 5.0
FRAME_STALE_S = 15.0

RoomState = Literal["draft", "prequeue", "open", "paused", "draining", "last_chance", "sold_out", "closed"]


def line_channel(event_id: str) -> str:
    return f"show:{{{event_id}}}:line"


def stock_channel(event_id: str) -> str:
    return f"show:{{{event_id}}}:sections"


def order_channel(reference: str) -> str:
    return f"show:{{{reference}}}:order"


def log_key(channel: str) -> str:
    """Where the latest frames of a channel are kept; in the channel's own slot of a cluster."""
    return f"{channel}:log"


def keeps_log(channel: str) -> bool:
    """Lines and stocks are kept; an order's exact state can be asked for at any time."""
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


class Frame(BaseModel):
    """What every frame carries. `after` is the version that was shown before it on its channel, as the log saw it."""

    model_config = ConfigDict(frozen=True)

    event_id: str
    epoch: int
    version: int
    ready: bool
    at_ms: int
    after: int | None = None


class LaneHead(BaseModel):
    """Where one lane stands."""

    head_seq: int
    tail_seq: int


class Throttled(BaseModel):
    """The rate is below what the operator set: which share of it is left, and why."""

    model_config = ConfigDict(frozen=True)

    factor: float
    reason: Literal["inventory-refuses", "inventory-slow", "inventory-full", "orders-refuses", "orders-slow",
                    "orders-full", "easing", "recovering"]  # fmt: skip


class LaneDraw(BaseModel):
    """What the ranks of one lane are computed with (`shared/rules/lottery_ranking.py`)."""

    entrants_n: int
    key: str


class LotteryFrame(BaseModel):
    """How far the lottery is; `lanes` is empty until it is drawn, and from then on public."""

    stage: Literal["open", "closed", "drawn"]
    lanes: dict[int, LaneDraw] = {}


class LineFrame(Frame):
    """The line as everybody sees it; `lanes` holds lane 0 as well. `rate_per_s` is what is in force, `calls_per_s` and
    `live_ratio` are measured. `full`: every slot is taken, so it is not the rate that holds the line up.
    `stock_bound`: every free ticket is one that somebody called or admitted is coming for. `called_at_ms`: of the last
    call.
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
    options: RoomOptions = RoomOptions()
    throttled: Throttled | None = None
    full: bool = False
    stock_bound: bool = False
    called_at_ms: int | None = None
    lottery: LotteryFrame | None = None


class Revoked(BaseModel):
    """Passes that died before their time, each with its end (ms). Shown once; who missed it asks the queue for all."""

    event_id: str
    passes: list[tuple[str, int]] = Field(max_length=REVOKED_MAX)


class SectionCounts(BaseModel):
    """What is left of one section."""

    section_id: str
    available: int
    held: int
    sold: int
    at_ms: int


class StockFrame(Frame):
    """All sections of an event, and how many holders have a live reservation. Two totals that only rise: how often
    somebody who had none took one, and how often somebody's last one ended without a purchase.
    """

    sections: list[SectionCounts]
    holders_holding: int = 0
    holds_begun: int = 0
    holds_let_go: int = 0

    @property
    def available(self) -> int:
        return sum(section.available for section in self.sections)

    @property
    def held(self) -> int:
        return sum(section.held for section in self.sections)


class OrderFrame(Frame):
    """The latest state of one order, and whose it is; `body` is what `GET /orders/{reference}` answers."""

    reference: str
    holder: str | None = None
    status: str
    body: dict[str, Any]


class LoadFrame(BaseModel):
    """How one process of a service bears its load, over the last few seconds: shown every second, missed by nobody.

    `writes` are public POSTs answered (holds, orders), `p95_ms` how long they took, those on their way included;
    `refused` are answers 503 to anybody; `pool_full_s` is for how long every connection to the ledger has been in use.
    """

    model_config = ConfigDict(frozen=True)

    service: str = Field(max_length=16)
    process: str = Field(max_length=64)
    at_ms: int
    writes: int
    refused: int
    p95_ms: float
    pool_full_s: float
