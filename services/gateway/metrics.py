"""Metrics of the gateway."""

from prometheus_client import Counter, Histogram

JOINS = Counter("gateway_joins_total", "Joins, by the queue's outcome.", ["outcome"])
POLLS = Counter(
    "gateway_polls_total", "Status polls, by source: computed from the line, cached, or requested.", ["source"]
)
CLAIMS = Counter("gateway_claims_total", "Attempts to claim a pass, by outcome.", ["outcome"])
FRAMES = Counter("gateway_frames_total", "Line frames received, by source.", ["source"])
HEARTBEATS_SENT = Counter("gateway_heartbeats_sent_total", "Places reported as active to the queue.")
HEARTBEATS_DROPPED = Counter(
    "gateway_heartbeats_dropped_total", "Heartbeats beyond the number that one process collects per lane."
)
FAIL_OPEN = Counter(
    "gateway_forward_auth_redis_errors_total",
    "Requests without a pass while the line is out of order, by verdict.",
    ["verdict"],
)
RELEASES = Counter(
    "gateway_forward_auth_releases_total", "Slots released by sites, by the place's new state.", ["state"]
)
CHECKS = Counter(
    "gateway_forward_auth_checks_total", "Forward-auth checks, by proxy and verdict.", ["proxy", "verdict"]
)
PROOFS = Counter("gateway_proofs_of_work_total", "Proofs of work required or checked, by outcome.", ["outcome"])
RATE_LIMITED = Counter("gateway_refused_by_limit_total", "Requests over a rate limit of this process.", ["limit"])
ESTIMATE_ERROR = Histogram(
    "gateway_estimate_error_seconds",
    "Difference of estimated and actual wait, of a sample; `changed`: a changed estimate named its reason.",
    ["estimate"],
    buckets=(1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800),
)
ESTIMATE_RANGE = Counter(
    "gateway_estimate_range_total", "Calls against the estimated range, of a sample: within, sooner or later.",
    ["estimate", "call"],
)  # fmt: skip
ESTIMATE_RATIO = Histogram(
    "gateway_estimate_ratio",
    "Actual wait as a multiple of the estimated one, of a sample.",
    ["estimate"],
    buckets=(0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0),
)
