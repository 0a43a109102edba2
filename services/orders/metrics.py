"""The metrics of orders."""

from prometheus_client import Counter, Gauge, Histogram

from shared.features import payment_providers
from shared.runtime.metrics import with_series

PROVIDERS = ("sandbox", *payment_providers())
STEP_NAMES = (
    "send_refund", "return_tickets", "confirm", "charge", "sync_provider", "cancel_charge", "abandon_attempt", "cancel",
    "expire", "release_hold", "mark_paid_late", "reacquire_stock", "request_refund", "mark_refunded", "issue_tickets",
    "review", "keep_sold", "capture", "revoke_unpaid_sale",
)  # fmt: skip
ORDERS = with_series(
    Counter("orders_orders_total", "Orders that reached a status.", ["status"]),
    status=("pending", "confirmed", "cancelled", "expired", "late_paid", "refunded"),
)
IDEMPOTENT_REPLAYS = Counter("orders_replayed_total", "Order requests answered with the order their key created.")
PROCESSED_INLINE = Counter(
    "orders_settled_in_request_total", "Orders processed in their request because no worker began them in time."
)
CHECKOUT_SECONDS = with_series(
    Histogram(
        "orders_checkout_seconds",
        "Time to create an order, by path: background (workers process it), request (processed in its request), "
        "late (the same, as no worker began it in time), overflow (no inline slot was free, left to workers).",
        ["path"],
    ),
    path=("background", "request", "overflow", "late"),
)
STEPS = with_series(Counter("orders_steps_total", "Steps of orders that were run.", ["step"]), step=STEP_NAMES)
STEP_FAILURES = with_series(
    Counter("orders_step_failures_total", "Steps that failed and will be retried.", ["step"]), step=STEP_NAMES
)
ORDERS_LOST = Counter("orders_lost_total", "Orders in work that another process had taken over.")
ORDERS_TAKEN_OVER = Counter("orders_taken_over_total", "Orders of other processes that this one took over.")
WEBHOOKS = with_series(
    Counter("orders_webhooks_total", "Payment webhooks received, by outcome.", ["provider", "outcome"]),
    provider=PROVIDERS, outcome=("stored", "not_ours", "invalid_signature"),
)  # fmt: skip
REVIEWS = with_series(
    Counter("orders_reviews_total", "Orders that wait for an operator's decision, by reason.", ["reason"]),
    reason=(
        "mismatch",
        "unknown",
        "refund-refused",
        "refunded-outside",
        "disputed",
        "dispute-lost",
        "dispute-won",
    ),
)
PROVIDER_SECONDS = with_series(
    Histogram("orders_provider_seconds", "Duration of calls to payment providers.", ["provider", "call"]),
    provider=PROVIDERS, call=("create", "fetch", "find", "list", "cancel", "capture", "refund", "refunds", "disputes"),
)  # fmt: skip
STEP_SECONDS = with_series(
    Histogram(
        "orders_step_seconds",
        "Time of one step of an order, failed ones included.",
        ["step"],
        buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    ),
    step=STEP_NAMES,
)
DUE = Gauge("orders_due", "Orders of this process that are due and wait for a free worker.")
OLDEST_DUE = Gauge("orders_oldest_due_seconds", "For how long the longest waiting of them has been due.")
WORKERS_IN_TIME = Gauge("orders_workers_in_time", "1 while workers begin orders in time, 0 after they did not.")
WORKERS_IN_TIME.set(1)
