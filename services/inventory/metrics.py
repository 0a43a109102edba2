"""Inventory's metrics."""

from prometheus_client import Counter, Gauge, Histogram

HOLD_OUTCOMES = Counter("inventory_holds_total", "Answers to reservation requests, by outcome.", ["outcome"])
HOLDS_ENDED = Counter("inventory_holds_ended_total", "Holds that ended without a sale, by reason.", ["reason"])
HOLD_ENDED_LATE = Histogram(
    "inventory_hold_ended_late_seconds",
    "Time from a hold's deadline (grace included) to its release.",
    buckets=(0.1, 0.25, 0.5, 1, 2, 5, 15, 60, 300),
)
DRIFT = Counter(
    "inventory_drift_total", "Differences between Redis and the database, by where they were found.", ["source"]
)
REBUILDS = Counter("inventory_redis_stock_rebuilds_total", "Rebuilds of an event's stock in Redis.")
REBUILD_SECONDS = Histogram(
    "inventory_redis_stock_rebuild_seconds",
    "Time of a rebuild, in which the event cannot be reserved.",
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2, 5),
)
REDIS_STOCK_READY = Gauge(
    "inventory_redis_stock_ready", "Events whose stock in Redis is ready, as this process sees it."
)
RESERVATIONS_RETURNED = Counter(
    "inventory_returned_reservations_total", "Sold reservations that were returned, by reason.", ["reason"]
)
DRIFT_CORRECTED = Counter(
    "inventory_drift_corrected_total", "Differences that reconciliation corrected, by kind.", ["kind"]
)
OVERSOLD = Counter("inventory_oversell_total", "Places sold beyond the capacity, by decision.", ["status"])
OVERSELL_WAITING = Gauge(
    "inventory_oversell_waiting", "Oversells that wait for an operator's decision, as this process sees it."
)
RECONCILE_SECONDS = Histogram(
    "inventory_reconcile_seconds",
    "Time of one reconcile pass over an event.",
    buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 15),
)
