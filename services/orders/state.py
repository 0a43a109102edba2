"""What the doors of this service are handed: everything that `app.py` opened."""

from dataclasses import dataclass

from starlette.requests import Request

from services.orders.api.auth import CustomerAuthenticator
from services.orders.checkout.background_share import BackgroundShare
from services.orders.checkout.checkout import Checkout
from services.orders.checkout.inventory_client import InventoryBatcher
from services.orders.order.repository import OrderRepository
from services.orders.payments.provider import Provider
from services.orders.payments.webhook_inbox import WebhookInbox
from services.orders.pricing.rules_cache import PriceRulesCache
from services.orders.processing.job_queue import JobQueue
from services.orders.processing.worker_pool import InlineProcessor, WorkerPool
from services.orders.settings import Settings
from services.orders.tickets.pdf import PdfRenderer
from services.orders.webhooks.dispatcher import WebhookDispatcher
from services.orders.webhooks.sender import Sender
from shared.postgres.engine import AsyncEngine
from shared.redis.client import Redis
from shared.security.token_buckets import Buckets


@dataclass(frozen=True, slots=True)
class State:
    """One process of orders."""

    settings: Settings
    db: AsyncEngine
    book: OrderRepository
    redis: Redis
    callers: CustomerAuthenticator
    checkout: Checkout
    workers: WorkerPool
    inline: InlineProcessor
    shares: BackgroundShare
    jobs: JobQueue
    inbox: WebhookInbox
    providers: dict[str, Provider]
    sender: Sender
    couriers: WebhookDispatcher
    stock: InventoryBatcher
    printer: PdfRenderer
    prices: PriceRulesCache
    prints: Buckets


def state_of(request: Request) -> State:
    """Where this request was received."""
    state: State = request.app.state.deps
    return state
