"""What operators read and write who help buyers: orders found, their timeline and commands, decisions, refunds of an
event. Amounts are integers of the currency's minor units.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from shared.contracts.admin.orders import AdminOrder, Answered, Reason, Time
from shared.contracts.event_parts.names import NamesChange
from shared.contracts.fields import RATE_MIN_PER_S, Page

RATE_MAX_PER_S = 200.0
Decision = Literal["confirm", "refund", "expire"]
CommandStatus = Literal["pending", "processing", "completed", "failed"]


class OrderPage(Page):
    """Orders found by a search, newest first."""

    orders: list[AdminOrder]


class TimelineEntry(BaseModel):
    """One row about an order: its `kind` says of which table, which decides the other fields."""

    model_config = ConfigDict(extra="allow", frozen=True)

    at: str
    kind: str


class Timeline(Answered):
    """An order and its rows, oldest first; not `complete` if there were too many to list."""

    order: AdminOrder
    timeline: list[TimelineEntry]
    complete: bool


class ResolveRequest(Reason):
    """A person's decision about an order in review."""

    decision: Decision
    return_to_sale: bool = False


class RenameRequest(Reason, NamesChange):
    """New names on tickets, by `ticket_id`; or the one name of an order whose event asks for one an order."""


class EventRefundRequest(Reason):
    """Refund every order of an event at this rate."""

    rate_per_s: float = Field(10.0, ge=RATE_MIN_PER_S, le=RATE_MAX_PER_S)
    return_to_sale: bool = False


class EventRefundResume(Reason):
    """Resume, at another rate if one is given."""

    rate_per_s: float | None = Field(None, ge=RATE_MIN_PER_S, le=RATE_MAX_PER_S)


class RefundSum(Answered):
    """Refunds of one status."""

    count: int
    amount_minor: int


class EventRefundProgress(Answered):
    """The latest refund of an event: how many refunds it requested (`asked`) and how many unpaid orders it cancelled.
    `refunds` and `orders` count by status all that the event has.
    """

    event_id: str
    status: str
    rate_per_s: float
    return_to_sale: bool
    reason: str
    asked_by: str
    asked: int
    cancelled: int
    started_at: str
    ended_at: str | None
    refunds: dict[str, RefundSum]
    orders: dict[str, int]


class Command(Answered):
    """One command of an order: what caused it, how often it was tried, and its latest error."""

    command_id: str
    reference: str
    command_type: str
    caused_by: str
    payload: dict[str, Any]
    status: str
    attempts: int
    created_at: Time
    processed_at: Time | None
    error_message: str | None
    event_id: str | None


class CommandPage(Page):
    """Commands, newest first."""

    commands: list[Command]
