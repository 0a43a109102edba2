"""What the doors of this service are handed: everything that `app.py` opened."""

from dataclasses import dataclass

from services.orders.book import Book
from services.orders.callers import Callers
from services.orders.checkout import Checkout
from services.orders.jobs import Jobs
from services.orders.payments.provider import Provider
from services.orders.price_list import PriceList
from services.orders.settings import Settings
from services.orders.webhooks import Inbox
from services.orders.workers import Workers
from shared.postgres import AsyncEngine
from shared.redis import Redis


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
    jobs: Jobs
    inbox: Inbox
    providers: dict[str, Provider]
    prices: PriceList
