"""What inventory counts about itself."""

from prometheus_client import Counter, Gauge, Histogram

HOLDS = Counter("inventory_holds_total", "Answers to reservations, by the word they ended with.", ["outcome"])
ENDED = Counter("inventory_holds_ended_total", "Holds that ended without a sale, by how.", ["reason"])
ENDED_LATE = Histogram(
    "inventory_hold_ended_late_seconds",
    "Time from a hold's deadline (grace included) to its release.",
    buckets=(0.1, 0.25, 0.5, 1, 2, 5, 15, 60, 300),
)
DRIFT = Counter("inventory_drift_total", "Differences between gate and ledger, by where they were found.", ["source"])
REBUILDS = Counter("inventory_redis_stock_rebuilds_total", "Times a gate was filled anew from the ledger.")
REBUILD_SECONDS = Histogram(
    "inventory_redis_stock_rebuild_seconds",
    "Time from closing a gate to opening it.",
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2, 5),
)
GATES_READY = Gauge("inventory_redis_stock_ready", "Gates that answer holds, as this process sees it.")
RETURNED = Counter(
    "inventory_returned_reservations_total", "Sold reservations that were taken back, by why.", ["reason"]
)
CORRECTED = Counter("inventory_drift_corrected_total", "Differences that reconcile set right, by kind.", ["kind"])
OVERSOLD = Counter("inventory_oversell_total", "Places sold beyond what there is, by what was decided.", ["status"])
OVERSELL_WAITING = Gauge("inventory_oversell_waiting", "Oversells that wait for an operator, as this process sees it.")
RECONCILE_SECONDS = Histogram(
    "inventory_reconcile_seconds", "One look over an event.", buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 15)
)
