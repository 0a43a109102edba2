"""Settings of services and of the event at their edges: each value is one that the product accepts."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

SETTINGS: Mapping[str, Sequence[Any]] = {
    "ONSALE_POSTGRES_POOL_MAX": (2, 4), "ONSALE_POSTGRES_POOL_WAIT_S": (0.2, 1),
    "ONSALE_POSTGRES_CONNECT_TIMEOUT_S": (0.5, 10),
    "ONSALE_POSTGRES_IDLE_TRANSACTION_TIMEOUT_MS": (1000,),
    "ONSALE_SHUTDOWN_GRACE_S": (0, 1), "ONSALE_DRAIN_DELAY_S": (1,),
    "GATEWAY_EVENTS_MAX": (1,),
    "GATEWAY_CACHE_ENTRIES_MAX": (1, 3), "GATEWAY_POLL_MIN_MS": (100, 500),
    "QUEUE_RAMP_AFTER_LOSS": ("false",),
    "INVENTORY_CACHE_ENTRIES_MAX": (1, 3),
    "INVENTORY_GIVEN_BACK_AT_ONCE": (1,), "INVENTORY_GIVEN_BACK_PAUSE_S": (0.2,),
    "INVENTORY_RECONCILE_INTERVAL_S": (1, 5),
    "ORDERS_CAPTURE": ("after_confirm",),
    "ORDERS_PROVIDER_TIMEOUT_S": (1, 2), "ORDERS_PROVIDER_CONNECTIONS_MAX": (1, 2), "ORDERS_PAYMENT_RETRIES": (0, 1),
    "ORDERS_PROVIDER_SYNC_INTERVAL_S": (0.1, 5),
    "ORDERS_WORKERS": (1, 2),
    "ORDERS_WEBHOOK_WORKERS": (1,),
    "ORDERS_MAILS_PER_S": (1,),
    "NOTIFIER_TRANSPORT": ("asgi",), "NOTIFIER_WINDOW_MS": (0, 2000), "NOTIFIER_HEARTBEAT_S": (0.5,),
    "NOTIFIER_DRAIN_S": (0,),
}  # fmt: skip
POSTGRES_TIMEOUTS = (  # of a lock and a statement (ms) and of any answer (s), each longer than the one before
    (100, 1000, 2), (1000, 1000, 1.5), (100, 3000, 15), (2000, 3000, 5),
)  # fmt: skip
ALWAYS = {  # a trial has no time for the usual pauses; its fans all come from one address
    "GATEWAY_ADDRESS_JOINS_BURST": "100000", "GATEWAY_POLL_MIN_MS": "300", "INVENTORY_ADDRESS_HOLDS_MAX": "0",
    "ORDERS_RETRY_MAX_S": "2", "ORDERS_PROVIDER_TIMEOUT_S": "4", "ORDERS_WEBHOOK_BACKOFF_S": str([0.5] * 30),
    "ORDERS_WEBHOOK_TIMEOUT_S": "2", "ORDERS_SMTP_TIMEOUT_S": "3", "ORDERS_MAIL_RETRY_FIRST_S": "0.5",
    "ONSALE_SANDBOX_HANG_S": "6", "ONSALE_SANDBOX_SLOW_S": "1", "ONSALE_SANDBOX_LATE_AFTER_S": "1.5",
    "ONSALE_LOG_REQUESTS": "false", "ORDERS_WEBHOOK_ALLOW_LOOPBACK": "true",
}  # fmt: skip
ROOM: Mapping[str, Sequence[Any]] = {
    "rate_per_s": (2, 6, 20, 200), "burst": (1, 3, 50), "max_active": (3, 8, 200), "session_s": (10, 20, 900),
    "claim_window_s": (5, 8, 60), "liveness_window_s": (2, 4, 30), "max_misses": (1, 2),
    "returning_share": (0, 0.2, 1), "stock_coupling": (True, False),
}  # fmt: skip
SALES: Mapping[str, Sequence[Any]] = {
    "hold_ttl_s": (5, 8, 20), "pay_ttl_s": (5, 10, 20), "grace_s": (0, 2, 5), "tickets_per_order": (1, 4, 6),
    "tickets_per_customer": (0, 4, 6), "active_reservations_per_customer": (0, 1), "open_orders_per_customer": (0, 1),
    "avoid_single_seats": (True, False),
}  # fmt: skip
CHANGED_SETTINGS_MAX = 8


def draw_settings(rng: random.Random) -> dict[str, str]:
    """Some settings of services at an edge; all others have their defaults."""
    names = rng.sample(sorted(SETTINGS), rng.randint(0, CHANGED_SETTINGS_MAX))
    drawn = {name: str(rng.choice(SETTINGS[name])) for name in sorted(names)}
    if rng.random() < 0.2:
        drawn |= postgres_timeouts(*rng.choice(POSTGRES_TIMEOUTS))
    return drawn


def postgres_timeouts(lock_ms: int, statement_ms: int, answer_s: float) -> dict[str, str]:
    return {
        "ONSALE_POSTGRES_LOCK_TIMEOUT_MS": str(lock_ms), "ORDERS_POSTGRES_LOCK_TIMEOUT_MS": str(lock_ms),
        "ONSALE_POSTGRES_STATEMENT_TIMEOUT_MS": str(statement_ms), "ONSALE_POSTGRES_ANSWER_TIMEOUT_S": str(answer_s),
    }  # fmt: skip


def draw(rng: random.Random, edges: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    return {name: rng.choice(values) for name, values in edges.items()}
