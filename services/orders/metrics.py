"""The metrics of orders."""

from prometheus_client import Counter, Histogram

ORDERS = Counter("orders_orders_total", "Orders that reached a status.", ["status"])
IDEMPOTENT_REPLAYS = Counter("orders_replayed_total", "Order requests answered with the order their key created.")
PROCESSED_INLINE = Counter(
    "orders_settled_in_request_total", "Orders processed in their request because the job queue was unavailable."
)
CHECKOUT_SECONDS = Histogram(
    "orders_checkout_seconds",
    "Time to create an order, by path: background (workers process it), request (processed in its request), "
    "job_engine_away (the same, as no job could be enqueued), overflow (no inline slot was free, left to workers).",
    ["path"],
)
JOBS_RECEIVED = Counter("orders_jobs_received_total", "Jobs that woke the workers.")
STEPS = Counter("orders_steps_total", "Steps of orders that were run.", ["step"])
STEP_FAILURES = Counter("orders_step_failures_total", "Steps that failed and will be retried.", ["step"])
LEASES_LOST = Counter("orders_leases_lost_total", "Leases of orders that another worker took over.")
WEBHOOKS = Counter("orders_webhooks_total", "Payment webhooks received, by outcome.", ["provider", "outcome"])
REVIEWS = Counter("orders_reviews_total", "Orders sent to review by an operator.", ["reason"])
MAILS = Counter("orders_mails_total", "Mails sent, by outcome.", ["kind", "outcome"])
PROVIDER_SECONDS = Histogram("orders_provider_seconds", "Duration of calls to payment providers.", ["provider", "call"])
WEBHOOK_DELIVERIES = Counter(
    "orders_webhook_deliveries_total", "Webhook deliveries to organisers, by outcome.", ["outcome"]
)
