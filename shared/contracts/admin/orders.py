"""The admin API of orders: orders and their refunds, event files, the audit log and webhook endpoints.

Amounts are integers of the currency's minor units. Times are RFC 3339 texts, as they were stored. A response names
all its fields: one that is not named here is a mistake and is refused where the response is made.
"""

from collections import Counter
from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from shared.contracts.event_parts.price_types import TypeId
from shared.contracts.fields import Body, PlainText, SeatId, SectionId
from shared.contracts.orders import OrderView

AMOUNT_MAX = 10**12
TICKETS_MAX = 100


def _text_of(at: Any) -> Any:
    return at.isoformat() if isinstance(at, datetime) else at


Time = Annotated[str, BeforeValidator(_text_of), Field(json_schema_extra={"format": "date-time"})]


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
    """Some tickets of a GA section and price type."""

    section_id: SectionId
    quantity: int = Field(ge=1, le=TICKETS_MAX)
    type_id: TypeId | None = Field(
        None, description="Needed where the order has tickets of several price types in this section."
    )


class TicketSelection(Body):
    """Some tickets of an order, each named once."""

    seats: list[SeatId] = Field(default_factory=list, max_length=TICKETS_MAX)
    ga: list[GeneralAdmissionTickets] = Field(default_factory=list, max_length=TICKETS_MAX)

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        sections, named = Counter(some.section_id for some in self.ga), {(s.section_id, s.type_id) for s in self.ga}
        if not (self.seats or self.ga):
            raise ValueError("name at least one ticket")
        if len(set(self.seats)) < len(self.seats) or len(named) < len(self.ga):
            raise ValueError("name every seat and every section once")
        if any(some.type_id is None and sections[some.section_id] > 1 for some in self.ga):
            raise ValueError("name the type_id of a section that is named more than once")
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


class RecentTickets(Answered):
    """Tickets confirmed in each of the last seconds, oldest first, of how many orders."""

    tickets: list[int]
    orders: int


class OrdersFlow(Answered):
    """Fans who ever ordered, those of them with a confirmed order, and orders by status. `due` counts orders whose next
    step is due, `declines` declined payments by the provider's reason.
    """

    event_id: str
    at: datetime
    fans_ordered: int
    fans_confirmed: int
    confirmed_ever: int
    by_status: dict[str, int]
    oldest_pending_s: float | None
    due: int
    oldest_due_s: float | None
    declines: dict[str, int]
    recent: RecentTickets
    first_at: datetime | None
    last_at: datetime | None
