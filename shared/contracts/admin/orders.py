"""The admin API of orders: orders and their refunds, event files, the audit log and webhook endpoints.

Amounts are integers of the currency's minor units. Times are RFC 3339 texts, as they were stored. A response names
all its fields: one that is not named here is a mistake and is refused where the response is made.
"""

from datetime import datetime
from typing import Annotated, Any, Literal, Self

import httpx
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from shared.contracts.admin.page import Page
from shared.contracts.fields import Body, EventId, PlainText, SeatId, SectionId
from shared.contracts.orders import OrderView

AMOUNT_MAX = 10**12
TICKETS_MAX = 100
PORT_MAX = 65_535


def _text_of(at: Any) -> Any:
    return at.isoformat() if isinstance(at, datetime) else at


Time = Annotated[str, BeforeValidator(_text_of), Field(json_schema_extra={"format": "date-time"})]
DeliveryStatus = Literal["pending", "delivered", "failed"]
WebhookKind = Literal["order.created", "order.confirmed", "order.cancelled", "order.expired", "order.refunded"]
WEBHOOK_KINDS: tuple[WebhookKind, ...] = (
    "order.created", "order.confirmed", "order.cancelled", "order.expired", "order.refunded",
)  # fmt: skip


class Answered(BaseModel):
    """A response, or a part of one."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Reason(Body):
    """Why an operator does this; it is kept in the audit log."""

    reason: PlainText


class EventFileApplied(Answered):
    """What applying an event file did; with `dry_run`, what it would have done."""

    event_id: str
    changed: bool
    fees: int
    taxes: int
    dry_run: bool
    warnings: list[str] = Field(
        default_factory=list,
        description="What is applied and may not be meant, such as letters that no paper can show.",
    )


class AmountsChecked(Answered):
    """One sentence for each amount that a configured payment provider can never charge."""

    refusals: list[str]


class AdminOrder(OrderView):
    """An order as its buyer sees it, and what an operator may decide about it while it is in review."""

    may_be_resolved_by: list[str]


class GeneralAdmissionTickets(Body):
    """Some tickets of a GA section."""

    section_id: SectionId
    quantity: int = Field(ge=1, le=TICKETS_MAX)


class TicketSelection(Body):
    """Some tickets of an order, each named once."""

    seats: list[SeatId] = Field(default_factory=list, max_length=TICKETS_MAX)
    ga: list[GeneralAdmissionTickets] = Field(default_factory=list, max_length=TICKETS_MAX)

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        sections = [some.section_id for some in self.ga]
        if not (self.seats or self.ga):
            raise ValueError("name at least one ticket")
        if len(set(self.seats)) < len(self.seats) or len(set(sections)) < len(sections):
            raise ValueError("name every seat and every section once")
        return self


class RefundBody(Reason):
    """What to refund: an amount, or some tickets, or, without either, all that is left. `return_to_sale` puts the
    tickets' places on sale again.
    """

    amount_minor: int | None = Field(None, strict=True, ge=1, le=AMOUNT_MAX)
    tickets: TicketSelection | None = None
    return_to_sale: bool = False

    @model_validator(mode="after")
    def _amount_or_tickets(self) -> Self:
        if self.amount_minor is not None and (self.tickets is not None or self.return_to_sale):
            raise ValueError("a refund of an amount returns no tickets: leave out tickets and return_to_sale")
        return self


class BackgroundShareRequest(Reason):
    """Percentage of an event's checkouts to process in the background. At 0 every order is processed within its
    request, as far as the bounded slots for that allow.
    """

    background_percent: float = Field(ge=0, le=100)


class BackgroundShareAnswer(Answered):
    """Percentage of an event's checkouts that are processed in the background."""

    event_id: str
    background_percent: float


class BackgroundShareChanged(BackgroundShareAnswer):
    """The percentage as it is now, and whether the request changed it."""

    changed: bool


class InvariantResult(Answered):
    """Whether one invariant holds; `detail` names the first orders that break it."""

    invariant: str
    holds: bool
    detail: str


class InvariantReport(Answered):
    """The invariants of orders and money. `confirmed` counts the orders that were ever confirmed."""

    confirmed: int
    invariants: list[InvariantResult]


def _plain_url(text: str) -> str:
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as refused:
        raise ValueError("not a URL") from refused
    if not url.host or url.userinfo or url.fragment or not 0 < (url.port or 443) <= PORT_MAX:
        raise ValueError("a URL with a host, without a user name and without a fragment")
    return text


WebhookUrl = Annotated[
    str, StringConstraints(pattern=r"^https?://[\x21-\x7e]+$", max_length=1000), AfterValidator(_plain_url)
]


class NewWebhookEndpoint(Body):
    """Which events to send where, of one event or of all."""

    url: WebhookUrl
    kinds: list[WebhookKind] = Field(
        default_factory=lambda: list(WEBHOOK_KINDS), min_length=1, max_length=len(WEBHOOK_KINDS)
    )
    event_id: EventId | None = None
    description: PlainText | None = None
    reason: PlainText


class WebhookEndpoint(Answered):
    """A webhook endpoint. `failing_since`: no delivery succeeded since then."""

    endpoint_id: str
    url: str
    kinds: list[str]
    event_id: str | None
    description: str | None
    created_at: Time
    failing_since: Time | None
    disabled_at: Time | None
    disabled_reason: str | None


class CreatedWebhookEndpoint(WebhookEndpoint):
    """A new endpoint with its signing secret, which is shown this once."""

    secret: str


class WebhookEndpoints(Answered):
    """All webhook endpoints, oldest first."""

    endpoints: list[WebhookEndpoint]


class WebhookDelivery(Answered):
    """One message to one endpoint: `due_at` is the next attempt, `answer_status` the latest HTTP status received."""

    id: int
    endpoint_id: str
    message_id: str
    kind: str
    event_id: str
    reference: str
    status: str
    attempts: int
    created_at: Time
    due_at: Time | None
    delivered_at: Time | None
    answer_status: int | None
    error: str | None


class WebhookDeliveryPage(Page):
    """Deliveries of an endpoint, newest first."""

    deliveries: list[WebhookDelivery]
