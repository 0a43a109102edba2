"""The parts of one orders process that the handlers need, as `app.py` opened them."""

from dataclasses import dataclass

from starlette.requests import Request

from services.orders.auth import CustomerAuthenticator
from services.orders.checkout.background_share import BackgroundShare
from services.orders.checkout.checkout import Checkout
from services.orders.mail.smtp import MailServer
from services.orders.pricing.quote import PriceRulesCache
from services.orders.providers.provider import Provider
from services.orders.reports.flow import OrdersFlows
from services.orders.settings import Settings
from services.orders.steps.run import InventoryBatcher
from services.orders.store.frames import Frames
from services.orders.store.store import OrderStore
from services.orders.store.webhook_inbox import WebhookInbox
from services.orders.tickets.pdf import PdfRenderer
from services.orders.tuning import Tuning
from services.orders.webhooks.dispatcher import Sender, WebhookDispatcher
from services.orders.worker.worker import Worker
from shared.postgres.engine import AsyncEngine
from shared.redis.client import Redis
from shared.security.limits import Buckets


@dataclass(frozen=True, slots=True)
class State:
    """The parts of one process."""

    settings: Settings
    tuning: Tuning
    db: AsyncEngine
    store: OrderStore
    frames: Frames
    redis: Redis
    authenticator: CustomerAuthenticator
    checkout: Checkout
    worker: Worker
    background_share: BackgroundShare
    webhook_inbox: WebhookInbox
    providers: dict[str, Provider]
    webhook_sender: Sender
    webhook_dispatcher: WebhookDispatcher
    inventory: InventoryBatcher
    pdf_renderer: PdfRenderer
    price_rules: PriceRulesCache
    pdf_limiter: Buckets
    link_limiter: Buckets
    mail_server: MailServer | None
    flows: OrdersFlows


def state_of(request: Request) -> State:
    """The state of the app that received this request."""
    state: State = request.app.state.deps
    return state
