"""What orders counts."""

from prometheus_client import Counter, Histogram

ORDERS = Counter("orders_orders_total", "Orders that reached a status.", ["status"])
REPLAYED = Counter("orders_replayed_total", "Requests answered with an order made before.")
INLINE = Counter("orders_settled_in_request_total", "Orders whose request settled them: the job engine did not answer.")
CHECKOUT_SECONDS = Histogram(
    "orders_checkout_seconds",
    "Orders taken, by who settled them: the background, the request (by the share, or as the job engine was away), or "
    "the background because too many requests settled theirs.",
    ["path"],
)
WAKE_UPS = Counter("orders_jobs_received_total", "Jobs that woke the workers.")
STEPS = Counter("orders_steps_total", "Steps done on orders.", ["step"])
STEP_FAILURES = Counter("orders_step_failures_total", "Steps that will be tried again.", ["step"])
LEASES_LOST = Counter("orders_leases_lost_total", "Orders that another worker had taken over in the meantime.")
WEBHOOKS = Counter("orders_webhooks_total", "Webhooks by what became of them.", ["provider", "outcome"])
REVIEWS = Counter("orders_reviews_total", "Orders that a person must look at.", ["reason"])
MAILS = Counter("orders_mails_total", "Mails by what became of them.", ["kind", "outcome"])
PROVIDER_SECONDS = Histogram("orders_provider_seconds", "Calls to payment providers.", ["provider", "call"])
HOOKS = Counter("orders_webhook_deliveries_total", "Webhooks sent to organisers, by what came of it.", ["outcome"])
