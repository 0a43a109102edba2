"""All guards, in the order of the page."""

from proof.guards.console_guards import GUARDS as CONSOLE
from proof.guards.gateway_guards import GUARDS as GATEWAY
from proof.guards.guard import Guard
from proof.guards.inventory_guards import GUARDS as INVENTORY
from proof.guards.loops_guards import GUARDS as LOOPS
from proof.guards.notifier_guards import GUARDS as NOTIFIER
from proof.guards.onsale_guards import GUARDS as ONSALE
from proof.guards.orders_guards import GUARDS as ORDERS
from proof.guards.orders_worker_guards import GUARDS as ORDERS_WORKER
from proof.guards.queue_guards import GUARDS as QUEUE
from proof.guards.shared_guards import GUARDS as SHARED
from proof.guards.web_guards import GUARDS as WEB

GUARDS: tuple[Guard, ...] = (
    *GATEWAY, *QUEUE, *INVENTORY, *ORDERS, *ORDERS_WORKER, *NOTIFIER, *CONSOLE, *SHARED, *ONSALE,
    *WEB, *LOOPS,
)  # fmt: skip
