"""The metrics every service has; each service's own stand in its `metrics.py`, prefixed with its name.

Labels come from closed sets: a route's template, never a path or an id.
"""

from collections.abc import Iterable
from itertools import product
from typing import TypeVar

from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics

disable_created_metrics()  # type: ignore[no-untyped-call]  # a series more for each counter, which nothing here reads

Metric = TypeVar("Metric", Counter, Gauge, Histogram)
LABEL_VALUES: dict[str, dict[str, tuple[str, ...]]] = {}  # of every metric with closed labels, for the reference page


def with_series(metric: Metric, **values: Iterable[str]) -> Metric:
    """`metric` with a series for each combination of its label values, in the order of its labels.

    Each then stands at 0 from the start: an increase is only seen between two samples, so an alert on a series that
    appears with its first event stays silent for that event. A feature adds its own values to those of a service.
    """
    known = LABEL_VALUES.setdefault(next(iter(metric.describe())).name, {})
    for label, added in values.items():
        known[label] = known.get(label, ()) + tuple(added)
    for combination in product(*known.values()):
        metric.labels(*combination)
    return metric


REQUESTS = Histogram(
    "onsale_http_request_seconds",
    "Time from the request's head to the end of its answer.",
    ["service", "route", "method", "status"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
)
FAILURES = Counter(
    "onsale_http_failures_total",
    "Requests answered 5xx. The series of every route stands at 0 from the start.",
    ["service", "route", "method"],
)
NAMELESS_CLIENTS = with_series(
    Counter(
        "onsale_nameless_clients_total",
        "How often a client's address was needed and X-Forwarded-For was unreadable, or absent on this machine.",
        ["kind"],
    ),
    kind=("unreadable", "absent"),
)
LOOP_FAILURES = Counter("onsale_loop_failures_total", "Turns of a background loop that raised.", ["loop"])
LOG_BEHIND_S = Gauge(
    "onsale_event_log_behind_seconds", "Age of the oldest event in the outbox that the log has not taken.", ["source"]
)
EVENTS_UNREAD_S = Gauge(
    "onsale_events_unread_seconds", "Age of the oldest event that a feature has not taken.", ["source", "reader"]
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
BATCH_SECONDS = Histogram(
    "onsale_batch_seconds",
    "Time of one group commit: from its start until its members are answered.",
    ["batch"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5),
)
DATABASE_CONFLICTS = Counter(
    "onsale_database_conflicts_total",
    "Statements that PostgreSQL ended for a conflict, by kind; most are tried again.",
    ["service", "kind"],
)
DATABASE_LOCK_WAITING = Gauge(
    "onsale_database_lock_waiting", "Statements of a service that wait for a lock in PostgreSQL.", ["service"]
)
REDIS_MEMORY = Gauge("onsale_redis_memory_bytes", "Memory that Redis uses.", ["node"])
REDIS_MEMORY_LIMIT = Gauge("onsale_redis_memory_limit_bytes", "Redis' `maxmemory`; 0 is no limit.", ["node"])
POOL_SIZE = Gauge("onsale_pool_size", "Connections that a pool may open.", ["service", "pool"])
POOL_IN_USE = Gauge("onsale_pool_in_use", "Connections of a pool in use now.", ["service", "pool"])
POOL_TIMEOUTS = Counter(
    "onsale_pool_timeouts_total", "Callers that got no connection of a pool in time.", ["service", "pool"]
)
LOOP_LAG = Histogram(
    "onsale_loop_lag_seconds",
    "How late this process's event loop ran a timer.",
    buckets=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0),
)
GC_PAUSE = Histogram(
    "onsale_gc_pause_seconds",
    "Time that one run of the garbage collector stopped this process.",
    buckets=(0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0),
)
