"""Inventory's metrics."""

from prometheus_client import Counter, Gauge, Histogram

from services.inventory.problems import (
    NoAccessiblePlaces,
    NoAdjacentSeats,
    SeatsTaken,
    SingleSeat,
    UnknownSeat,
    UnknownSection,
)
from shared.errors import problems
from shared.runtime.metrics import with_series

REFUSALS = (
    SeatsTaken, SingleSeat, NoAdjacentSeats, NoAccessiblePlaces, UnknownSection, UnknownSeat, problems.SoldOut,
    problems.LimitExceeded, problems.IdempotencyKeyReused, problems.BadCredential, problems.NotAdmitted,
    problems.StaleEpoch,
    problems.HoldExpired, problems.UnknownEvent, problems.Unavailable, problems.Overloaded, problems.ClocksApart,
    problems.InternalError,
)  # fmt: skip
HOLD_OUTCOMES = with_series(
    Counter("inventory_holds_total", "Answers to reservation requests, by outcome.", ["outcome"]),
    outcome=("held", "again", "failed", *(problem.slug for problem in REFUSALS)),
)
HOLDS_ENDED = with_series(
    Counter("inventory_holds_ended_total", "Holds that ended without a sale, by reason.", ["reason"]),
    reason=("deadline", "scan", "cancelled", "operator", "release-all", "leaving", "order", "orders-gone",
            "never-written"),
)  # fmt: skip
HOLD_ENDED_LATE = Histogram(
    "inventory_hold_ended_late_seconds",
    "Time from a hold's deadline (grace included) to its release.",
    buckets=(0.1, 0.25, 0.5, 1, 2, 5, 15, 60, 300),
)
DRIFT = with_series(
    Counter(
        "inventory_drift_total", "Differences between Redis and the database, by where they were found.", ["source"]
    ),
    source=("sync", "hold-refused", "reconcile", "database"),
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
RETURN_REASONS = ("capture", "oversell", "tickets", "other")
RESERVATIONS_RETURNED = with_series(
    Counter("inventory_returned_reservations_total", "Sold reservations that were returned, by reason.", ["reason"]),
    reason=RETURN_REASONS,
)
DRIFT_CORRECTED = with_series(
    Counter("inventory_drift_corrected_total", "Differences that reconciliation corrected, by kind.", ["kind"]),
    kind=("seat", "count", "hold", "selection", "usage", "database-seat", "database-remaining", "database-blocked",
          "database-oversold", "database-sold-twice"),
)  # fmt: skip
RECONCILE_SECONDS = Histogram(
    "inventory_reconcile_seconds",
    "Time of one reconcile pass over an event.",
    buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 15),
)
DRIFT_STANDING = Gauge(
    "inventory_drift_standing", "Differences that this process sees and has not corrected.", ["event_id"]
)
HOLDS_PENDING = Gauge("inventory_holds_pending", "Live reservations, paying or not yet.", ["event_id", "status"])
OLDEST_HOLD = Gauge("inventory_oldest_hold_seconds", "Age of the oldest live reservation.", ["event_id"])
