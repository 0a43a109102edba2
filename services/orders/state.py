"""The parts of one orders process that the handlers need, as `app.py` opened them."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from services.orders.auth import CustomerAuthenticator
from services.orders.checkout.checkout import Checkout
from services.orders.pricing.quote import Prices
from services.orders.steps.run import Parts
from services.orders.store.provider_reports import WebhookInbox
from services.orders.tickets.tickets import PaperPorts
from services.orders.worker.worker import Worker
from shared.postgres.engine import AsyncEngine
from shared.redis.client import Redis
from shared.security.tokens import Users


@dataclass(frozen=True, slots=True, kw_only=True)
class State(Parts):
    """All parts of one process: those that work on orders uses, and those of the APIs."""

    db: AsyncEngine
    redis: Redis
    authenticator: CustomerAuthenticator
    users: Users
    checkout: Checkout
    worker: Worker
    webhook_inbox: WebhookInbox
    papers: PaperPorts
    prices: Prices


def state_of(request: Request) -> State:
    """The state of the app that received this request."""
    state: State = request.app.state.deps
    return state


OrdersState = Annotated[State, Depends(state_of)]
