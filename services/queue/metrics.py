"""What the queue counts. Labels come from closed sets."""

from prometheus_client import Counter, Gauge, Histogram

JOINED = Counter("queue_joined_total", "Places given, durable.", ["numbered_by"])
JOIN_REFUSED = Counter("queue_join_refused_total", "Joins refused, by why.", ["reason"])
CALLED = Counter("queue_called_total", "Calls written to the ledger by this process.")
LANE_CALLED = Counter("queue_lane_called_total", "Calls written to the ledger by this process, per lane.", ["lane"])
LANE_CONTESTED = Gauge(
    "queue_lane_contended_calls", "Calls of turns in which all lanes had somebody to call.", ["event_id", "lane"]
)
LANE_DUE = Gauge("queue_lane_contended_fair_share", "The lane's share of these by weight.", ["event_id", "lane"])
CLAIMED = Counter("queue_claimed_total", "Calls turned into sessions.")
MISSED = Counter("queue_missed_total", "Calls nobody claimed in time.")
PASSED_BY = Counter("queue_bypass_admissions_total", "Calls beside the line: fans outside the rolled-out share.")
VOIDED = Counter("queue_voided_total", "Calls of numbers without a live place, taken back.")
ENDED = Counter("queue_ended_total", "Places ended.", ["reason"])
TICK_SECONDS = Histogram(
    "queue_tick_seconds",
    "One turn of the gatekeeper: script, ledger, acknowledgement, frame.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5),
)
WAITING = Gauge("queue_waiting", "Places above the head, an upper bound.", ["event_id"])
ACTIVE = Gauge("queue_active", "Sessions and standing calls.", ["event_id"])
REBUILDS = Counter("queue_rebuilds_total", "Fillings of the engine from the ledger.")
RECONCILED = Counter(
    "queue_reconciled_total",
    "Places that engine and ledger had differently: bought and not ended, freed, or all filled anew.",
    ["what"],
)
DEAF = Counter("queue_heartbeat_gap_ticks_total", "Turns in which signs of life may have been lost.")
THROTTLED = Gauge(
    "queue_throttle_share", "Share of the rate that the guard lets through; 1 is all of it.", ["event_id"]
)
THROTTLES = Counter("queue_throttles_total", "Times the guard began to throttle a room, by reason.", ["reason"])
AUTOTUNE = Gauge("queue_autotune_rate_per_s", "The rate autotune would set, or has set.", ["event_id"])
HANDED = Counter("queue_admitted_by_hand_total", "Calls an operator made beyond the rate.")
