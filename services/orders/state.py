"""What the doors of this service are handed: everything that `app.py` opened."""

from dataclasses import dataclass

from starlette.requests import Request

from services.orders.api.auth import Callers
from services.orders.checkout.background_share import Shares
from services.orders.checkout.checkout import Checkout
from services.orders.checkout.inventory_client import Stock
from services.orders.order.repository import Book
from services.orders.payments.provider import Provider
from services.orders.payments.webhook_inbox import Inbox
from services.orders.pricing.rules_cache import PriceList
from services.orders.processing.job_queue import Jobs
from services.orders.processing.worker_pool import Inline, Workers
from services.orders.settings import Settings
from services.orders.tickets.pdf import Printer
from services.orders.webhooks.dispatcher import Couriers
from services.orders.webhooks.sender import Sender
from shared.postgres.engine import AsyncEngine
from shared.redis.client import Redis
from shared.security.token_buckets import Buckets


@dataclass(frozen=True, slots=True)
class Room:
    """One process of orders."""

    settings: Settings
    engine: AsyncEngine
    book: Book
    redis: Redis
    callers: Callers
    checkout: Checkout
    workers: Workers
    inline: Inline
    shares: Shares
    jobs: Jobs
    inbox: Inbox
    providers: dict[str, Provider]
    sender: Sender
    couriers: Couriers
    stock: Stock
    printer: Printer
    prices: PriceList
    prints: Buckets


def room_of(request: Request) -> Room:
    """Where this request was received."""
    room: Room = request.app.state.room
    return room
