"""Response models of the fans' API of orders, and the request for another address."""

from typing import Literal

from pydantic import BaseModel

from services.orders.checkout.requests import CheckSpelling
from shared.contracts.fields import Body, Email
from shared.contracts.orders import OrderView, ProviderAnswer


class OrderAccepted(BaseModel):
    """An accepted order. `order_token` opens it for good; `checkout_url` is where the fan pays, if anywhere."""

    reference: str
    status: str
    order_token: str
    checkout_url: str | None
    expires_at: str
    expires_in_seconds: int
    poll_url: str
    updates_url: str


class OrdersPage(BaseModel):
    """A customer's orders, newest first."""

    page: int
    page_size: int
    orders: list[OrderView]


class ProvidersAnswer(BaseModel):
    """The payment providers that may be used."""

    providers: list[ProviderAnswer]


class WebhookStored(BaseModel):
    """A payment provider's webhook was stored, now or before."""

    stored: Literal[True] = True


class ShowAnswer(BaseModel):
    """The show that tickets are for; `when` is its local time in words."""

    event_id: str
    name: str
    venue: str
    when: str


class TicketAnswer(BaseModel):
    """A ticket; `code` is what a scanner reads, none for a void ticket."""

    ticket_id: str
    section_id: str
    seat_id: str | None
    place: str
    status: str
    void_at: str | None
    code: str | None


class TicketsAnswer(BaseModel):
    """The tickets of an order. `window_s` is how long a code is valid before it must be fetched again, 0 for ever."""

    reference: str
    event: ShowAnswer
    window_s: int
    tickets: list[TicketAnswer]


class EmailChange(Body):
    """The right e-mail address of an order."""

    email: Email
    check_spelling: CheckSpelling = False
