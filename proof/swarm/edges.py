"""Settings of services and of the event at their edges: each value is one that the product accepts."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

SETTINGS: Mapping[str, Sequence[Any]] = {
    "ONSALE_POSTGRES_POOL_MAX": (2, 4),
    "ONSALE_SHUTDOWN_GRACE_S": (0, 1), "ONSALE_DRAIN_DELAY_S": (1,),
    "GATEWAY_CACHE_ENTRIES_MAX": (1, 3), "INVENTORY_CACHE_ENTRIES_MAX": (1, 3),
    "ORDERS_CAPTURE": ("after_confirm",),
    "ORDERS_PROVIDER_TIMEOUT_S": (1, 2),
    "ORDERS_PROVIDER_SYNC_INTERVAL_S": (0.1, 5),
    "ORDERS_WEBHOOK_WORKERS": (1,),
    "ORDERS_MAILS_PER_S": (1,),
    "NOTIFIER_TRANSPORT": ("asgi",), "NOTIFIER_WINDOW_MS": (0, 2000),
    "NOTIFIER_DRAIN_S": (0,),
}  # fmt: skip
ALWAYS = {  # a trial has no time for the usual pauses; its fans all come from one address
    "GATEWAY_ADDRESS_JOINS_PER_S": "10000", "INVENTORY_ADDRESS_HOLDS_MAX": "0",
    "ORDERS_PROVIDER_TIMEOUT_S": "4", "ORDERS_WEBHOOK_BACKOFF_S": str([0.5] * 30),
    "ONSALE_SANDBOX_HANG_S": "6", "ONSALE_SANDBOX_SLOW_S": "1", "ONSALE_SANDBOX_LATE_AFTER_S": "1.5",
    "ONSALE_LOG_REQUESTS": "false",
    "ORDERS_WEBHOOK_ALLOW_LOOPBACK": "true",  # an earlier version beside ours needs it
}  # fmt: skip
ROOM: Mapping[str, Sequence[Any]] = {
    "rate_per_s": (2, 6, 20, 200), "burst": (1, 3, 50), "max_active": (3, 8, 200), "session_s": (10, 20, 900),
    "claim_window_s": (5, 8, 60), "liveness_window_s": (2, 4, 30), "max_misses": (1, 2),
    "returning_share": (0, 0.2, 1), "stock_coupling": (True, False),
}  # fmt: skip
SALES: Mapping[str, Sequence[Any]] = {
    "hold_ttl_s": (5, 8, 20), "pay_ttl_s": (5, 10, 20), "grace_s": (0, 2, 5), "tickets_per_order": (1, 4, 6),
    "tickets_per_customer": (0, 4, 6), "active_reservations_per_customer": (0, 1), "open_orders_per_customer": (0, 1),
    "avoid_single_seats": (True, False), "single_seats": ("allow", "tell", "refuse"),
}  # fmt: skip
TYPES: Mapping[str, Sequence[Any]] = {"child": (1, 3, 12, None), "carer": (2, None)}  # so many there are in all
CHANGED_SETTINGS_MAX = 8


def draw_settings(rng: random.Random) -> dict[str, str]:
    """Some settings of services at an edge; all others have their defaults."""
    names = rng.sample(sorted(SETTINGS), rng.randint(0, CHANGED_SETTINGS_MAX))
    return {name: str(rng.choice(SETTINGS[name])) for name in sorted(names)}


def draw(rng: random.Random, edges: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    return {name: rng.choice(values) for name, values in edges.items()}
