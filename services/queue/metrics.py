"""The queue's metrics. All label values come from closed sets, except `event_id`."""

from prometheus_client import Counter, Gauge, Histogram

from shared.contracts.queue import REFUSED
from shared.runtime.metrics import with_series

JOINED = with_series(
    Counter("queue_joined_total", "Places committed, by where their number came from.", ["numbered_by"]),
    numbered_by=("redis", "database"),
)
JOIN_REFUSED = with_series(Counter("queue_join_refused_total", "Joins refused, by reason.", ["reason"]), reason=REFUSED)
CALLED = Counter("queue_called_total", "Calls saved in the database by this process.", ["event_id"])
LANE_CALLED = with_series(
    Counter("queue_lane_called_total", "Calls saved in the database by this process, by lane.", ["lane"]),
    lane=map(str, range(16)),
)
LANE_CONTENDED_CALLS = Gauge(
    "queue_lane_contended_calls", "Calls a lane was given while all lanes contended.", ["event_id", "lane"]
)
LANE_FAIR_SHARE = Gauge(
    "queue_lane_contended_fair_share", "The lane's share of contended calls by weight.", ["event_id", "lane"]
)
CLAIMED = Counter("queue_claimed_total", "Calls turned into sessions.")
MISSED = Counter("queue_missed_total", "Calls that were not claimed in time.")
VOIDED = Counter("queue_voided_total", "Calls undone because their number has no live place.")
ENDED = with_series(
    Counter("queue_ended_total", "Places ended, by reason.", ["reason"]),
    reason=("completed", "expired", "left"),
)
TICK_SECONDS = Histogram(
    "queue_tick_seconds",
    "Duration of a tick: script, transaction, acknowledgement, frame.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5),
)
WAITING = Gauge("queue_waiting", "Places above the head: an upper bound of the waiting fans.", ["event_id"])
ACTIVE = Gauge("queue_active", "Open sessions and standing calls.", ["event_id"])
REBUILDS = Counter("queue_rebuilds_total", "Rebuilds of Redis from the database.")
RECONCILED = with_series(
    Counter(
        "queue_reconciled_total",
        "Differences between Redis and the database: bought and not ended, slots freed, or Redis rebuilt.",
        ["what"],
    ),
    what=("bought", "freed", "rebuilt"),
)
HEARTBEAT_GAP_TICKS = Counter("queue_heartbeat_gap_ticks_total", "Ticks in which heartbeats may have been lost.")
IN_PROGRESS = Gauge(
    "queue_in_progress",
    "Purchases in progress: fans called or let in a moment ago, and work at checkout.",
    ["event_id"],
)
CEILING = Gauge("queue_ceiling", "The overload guard's ceiling on purchases in progress.", ["event_id"])
THROTTLED = Gauge(
    "queue_throttle_share", "Share of the rate that the overload guard lets through; 1 is all of it.", ["event_id"]
)
THROTTLES = with_series(
    Counter("queue_throttles_total", "Times the overload guard began to throttle a room, by reason.", ["reason"]),
    reason=("inventory-silent", "orders-silent", "inventory-slow", "orders-slow"),
)
MANUALLY_ADMITTED = Counter("queue_manual_admissions_total", "Calls beyond the rate that operators requested.")
ROOM_OPEN = Gauge("queue_room_open", "1 while the room calls fans, else 0.", ["event_id"])
WAIT_SECONDS = Histogram(
    "queue_wait_seconds",
    "Time from joining to the call, observed when the call is saved.",
    ["event_id"],
    buckets=(1, 5, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200),
)
POSITION_ERROR = Gauge(
    "queue_position_error",
    "Places before a sampled fan as shown, less those that are alive: fans before them who left or gave up.",
    ["event_id"],
)
LINE_MEMORY = Gauge("queue_line_memory_bytes", "Memory of the line's keys in Redis.", ["event_id"])
