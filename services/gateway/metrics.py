"""Metrics of the gateway."""

from typing import get_args

from prometheus_client import Counter, Histogram

from shared.contracts.queue import REFUSED, PlaceState
from shared.runtime.metrics import with_series

ESTIMATES = ("kept", "changed")
JOINS = with_series(
    Counter("gateway_joins_total", "Joins, by the queue's outcome.", ["outcome"]), outcome=("joined", "known", *REFUSED)
)
POLLS = with_series(
    Counter(
        "gateway_polls_total", "Status polls, by source: computed from the line, cached, or requested.", ["source"]
    ),
    source=("arithmetic", "memory", "queue"),
)
CLAIMS = with_series(
    Counter("gateway_claims_total", "Attempts to claim a pass, by outcome.", ["outcome"]),
    outcome=("not-admitted-by-frame", *get_args(PlaceState)),
)
FRAMES = with_series(
    Counter("gateway_frames_total", "Line frames received, by source.", ["source"]),
    source=("pubsub", "request", "join", "invalid"),
)
HEARTBEATS_SENT = Counter("gateway_heartbeats_sent_total", "Places reported as active to the queue.")
HEARTBEATS_DROPPED = Counter(
    "gateway_heartbeats_dropped_total", "Heartbeats beyond the number that one process collects per lane."
)
RATE_LIMITED = with_series(
    Counter("gateway_refused_by_limit_total", "Requests over a rate limit of this process.", ["limit"]),
    limit=("fan", "address"),
)
ESTIMATE_ERROR = with_series(
    Histogram(
        "gateway_estimate_error_seconds",
        "Difference of estimated and actual wait, of a sample; `changed`: a changed estimate named its reason.",
        ["estimate"],
        buckets=(1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800),
    ),
    estimate=ESTIMATES,
)
ESTIMATE_RANGE = with_series(
    Counter(
        "gateway_estimate_range_total",
        "Calls against the estimated range, of a sample: within, sooner or later.",
        ["estimate", "call"],
    ),
    estimate=ESTIMATES, call=("within", "sooner", "later"),
)  # fmt: skip
ESTIMATE_RATIO = with_series(
    Histogram(
        "gateway_estimate_ratio",
        "Actual wait as a multiple of the estimated one, of a sample.",
        ["estimate"],
        buckets=(0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0),
    ),
    estimate=ESTIMATES,
)
