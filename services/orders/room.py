"""What the doors of this service are handed: everything that `app.py` opened."""

from dataclasses import dataclass

from starlette.requests import Request

from services.orders.book import Book
from services.orders.callers import Callers
from services.orders.checkout import Checkout
from services.orders.hooks.couriers import Couriers
from services.orders.hooks.sender import Sender
from services.orders.inline import Inline
from services.orders.jobs import Jobs
from services.orders.payments.provider import Provider
from services.orders.price_list import PriceList
from services.orders.printing import Printer
from services.orders.settings import Settings
from services.orders.shares import Shares
from services.orders.stock import Stock
from services.orders.webhooks import Inbox
from services.orders.workers import Workers
from shared.buckets import Buckets
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
