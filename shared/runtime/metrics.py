"""The metrics every service has; each service's own stand in its `metrics.py`, prefixed with its name.

Labels come from closed sets: a route's template, never a path or an id.
"""

from prometheus_client import Counter, Gauge, Histogram

REQUESTS = Histogram(
    "onsale_http_request_seconds",
    "Time from the request's head to the end of its answer.",
    ["service", "route", "method", "status"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
)
LOOP_FAILURES = Counter("onsale_loop_failures_total", "Turns of a background loop that raised.", ["loop"])
LOG_BEHIND_S = Gauge(
    "onsale_event_log_behind_seconds", "Age of the oldest event in the outbox that the log has not taken.", ["source"]
)
CLOCK_SKEW = Gauge(
    "onsale_clock_skew_seconds",
    "How far a clock is ahead of this process's; below zero it is behind.",
    ["service", "clock"],
)
BATCHES = Histogram(
    "onsale_batch_size",
    "Members per group commit.",
    ["batch"],
    buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
)
