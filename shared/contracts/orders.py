"""What orders answers other services: whether a payment still stands, and orders for their streams."""

from operator import not_
from typing import TYPE_CHECKING, Literal

from pydantic import ConfigDict, Field

from shared.contracts.event_parts.names import NamesWanted
from shared.contracts.fields import ServiceMessage
from shared.contracts.frames import OrderFrame

if TYPE_CHECKING:
    from shared.rpc import ServiceClient

BATCH_MAX = 256


class _View(ServiceMessage):
    model_config = ConfigDict(extra="forbid")


class NamedTicket(_View):
    """A ticket with its name; a `void` one admits nobody any more."""

    ticket_id: str
    name: str
    void: bool


class LineView(_View):
    """Tickets of one seat, or of one section and price type. `paid_minor` is what they cost together with discounts,
    fees and taxes. An event without price types has neither `type_id` nor `type_name`. `names` has each ticket with its
    name where the event asks for one a ticket.
    """

    section_id: str
    seat_id: str | None
    quantity: int
    returned: int
    unit_price_minor: int
    paid_minor: int
    # Left out while null, like what is below: a neighbour of 0.1.0 does not know them.
    type_id: str | None = Field(None, exclude_if=not_)
    type_name: str | None = Field(None, exclude_if=not_)
    names: list[NamedTicket] = Field(default_factory=list, exclude_if=not_)


class AdjustmentView(_View):
    """A discount, a fee or a tax; an `included` one is part of the price already. `percent` is a decimal as text."""

    kind: str
    name: str
    percent: str | None
    amount_minor: int
    included: bool


class CustomerView(_View):
    """Who ordered."""

    name: str | None
    email: str | None


class AttemptView(_View):
    """The latest payment attempt. `checkout_url` while the buyer has to pay on the provider's page."""

    n: int
    status: str
    reason: str | None
    checkout_url: str | None


class OrderView(_View):
    """An order as its buyer reads it. Amounts are minor units of `currency`, times RFC 3339 texts. `language` is that
    of its mails and papers. `mail_failed`: a mail about it was given up, and none was sent since.
    `dispute` is the buyer's dispute of the payment (open, won or lost by the seller), and `disputed_minor` what the
    provider has withdrawn for it.
    """

    reference: str
    event_id: str
    reservation_id: str
    status: str
    progress: str | None
    total_minor: int
    currency: str
    charged_minor: int
    refunded_minor: int
    refunding_minor: int
    # Left out while usual: a neighbour of 0.1.0 does not know the field, and refuses what it does not know.
    disputed_minor: int = Field(0, exclude_if=not_)
    dispute: str | None = Field(None, exclude_if=not_)
    lines: list[LineView]
    extras: list[AdjustmentView]
    customer: CustomerView
    mail_failed: bool = Field(False, exclude_if=not_)
    language: str
    created_at: str
    expires_at: str
    expires_in_seconds: int
    confirmed_at: str | None
    fulfilled_at: str | None
    cancel_asked: bool
    extended: bool
    oversold: bool
    end_reason: str | None
    attempt: AttemptView | None


class QuoteAnswer(ServiceMessage):
    """What the reservation costs with discounts, fees and taxes, in minor units. `names` says which names its order
    must bring: none, the customer's alone (`order`), or one for each ticket (`ticket`), in the order of `lines`.
    """

    reservation_id: str
    total_minor: int
    currency: str
    lines: list[LineView]
    extras: list[AdjustmentView]
    names: NamesWanted = "none"


class ProviderAnswer(ServiceMessage):
    """A payment provider and its methods."""

    name: str
    methods: list[str]


class PaymentRef(ServiceMessage):
    """A hold and the order that is said to pay for it."""

    reservation_id: str
    order_reference: str


class PaymentsQuestion(ServiceMessage):
    """Asked by inventory about holds in payment past their deadline."""

    payments: list[PaymentRef] = Field(min_length=1, max_length=BATCH_MAX)


class PaymentsAnswer(ServiceMessage):
    """`live`: leave it alone. `dead`: the order has ended unpaid. `absent`: there is no such order, and a tombstone now
    stands in its place so that a late transaction cannot make one.
    """

    payments: list[Literal["live", "dead", "absent"]]


class RefundsQuestion(ServiceMessage):
    """Asked by inventory: these were sold too often, so all their money goes back."""

    refunds: list[PaymentRef] = Field(min_length=1, max_length=BATCH_MAX)
    reason: str = Field(max_length=200)


class RefundsAnswer(ServiceMessage):
    """`asked`: the money is on its way back, also when it was before. `free`: nothing had been paid. `none`: there is
    no such sale, or it has ended. `later`: the order is not through yet; ask again.
    """

    refunds: list[Literal["asked", "free", "none", "later"]]


class OrdersQuestion(ServiceMessage):
    """Orders by their public reference."""

    references: list[str] = Field(min_length=1, max_length=BATCH_MAX)


class OrdersAnswer(ServiceMessage):
    """One frame per reference, in order; null for an unknown one."""

    orders: list[OrderFrame | None]


class OrdersClient:
    """Orders, asked over the wire."""

    def __init__(self, neighbour: "ServiceClient") -> None:
        self._ask = neighbour.call

    async def payments(self, payments: list[PaymentRef]) -> PaymentsAnswer:
        return await self._ask(
            "/reservations/status", PaymentsQuestion(payments=payments), PaymentsAnswer, deadline_s=5.0
        )

    async def refund(self, refunds: list[PaymentRef], *, reason: str) -> RefundsAnswer:
        question = RefundsQuestion(refunds=refunds, reason=reason)
        return await self._ask("/orders/refund", question, RefundsAnswer, deadline_s=5.0)

    async def read(self, references: list[str]) -> OrdersAnswer:
        return await self._ask("/orders/read", OrdersQuestion(references=references), OrdersAnswer)
