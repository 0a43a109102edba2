"""Metrics of the gateway."""

from prometheus_client import Counter, Histogram

JOINS = Counter("gateway_joins_total", "Fans at the door, by the queue's word.", ["outcome"])
POLLS = Counter(
    "gateway_polls_total", "Status polls: from arithmetic, from memory, or asked from the queue.", ["source"]
)
CLAIMS = Counter("gateway_claims_total", "Attempts to fetch a pass, by outcome.", ["outcome"])
FRAMES = Counter("gateway_frames_total", "Line frames taken in, by how they came.", ["source"])
SIGNS = Counter("gateway_heartbeats_sent_total", "Places reported alive to the queue.")
SIGNS_DROPPED = Counter("gateway_heartbeats_dropped_total", "Signs of life beyond what one process may collect.")
GATE_ENGINE = Counter(
    "gateway_forward_auth_redis_errors_total",
    "Requests without a pass while nobody can be called, by what became of them.",
    ["verdict"],
)  # fmt: skip
GATE_RELEASES = Counter(
    "gateway_forward_auth_releases_total", "Slots given back by sites, by the place's state after.", ["state"]
)
GATE_CHECKS = Counter(
    "gateway_forward_auth_checks_total", "Forward-auth checks, by proxy and verdict.", ["proxy", "verdict"]
)
PROOFS = Counter(
    "gateway_proofs_of_work_total", "Fans asked for a proof of work, or showing one, by outcome.", ["outcome"]
)
REFUSED = Counter("gateway_refused_by_limit_total", "Requests refused by this process's own limits.", ["limit"])
ESTIMATE_ERROR = Histogram(
    "gateway_estimate_error_seconds",
    "Promised wait against the wait until the call, of a sample; whether the promise was changed with a reason.",
    ["promise"],
    buckets=(1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800),
)
ESTIMATE_RANGE = Counter(
    "gateway_estimate_range_total", "Calls against the range that was told, of a sample: within, sooner or later.",
    ["promise", "call"],
)  # fmt: skip
ESTIMATE_RATIO = Histogram(
    "gateway_estimate_ratio",
    "Actual wait as a multiple of the promised one, of a sample.",
    ["promise"],
    buckets=(0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0),
)
