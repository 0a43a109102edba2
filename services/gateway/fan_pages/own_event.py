"""The part of an event's page that a fan without scripts sees and uses: forms and figures of this fan's own step.

It reads inventory and orders for a fan who is admitted, and the line's memory for all others.
"""

import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from services.gateway.event_page import OVER
from services.gateway.fan_pages.formats import BillLine, Ways, bill, places, remaining, seconds_until, ways
from services.gateway.fan_pages.seat_tables import SeatPlan, SeatTables
from services.gateway.fan_pages.stock import EventStock, SectionRow
from shared.contracts.inventory import FoundReservation, InventoryClient, Reservation
from shared.contracts.orders import CheckoutFacts, OrdersClient, ReadCheckout
from shared.rules.addresses import suggested_address
from shared.runtime.clock import now_ms
from shared.security.tokens import QueueToken
from shared.words.words import Words

ENDS = {
    "completed": ("completed_title", "completed_text"),
    "left": ("left_title", "left_text"),
    "expired": ("expired_title", ""),
    "expired unclaimed": ("unclaimed_title", "unclaimed_text"),
    "expired session": ("session_ended_title", "session_ended_text"),
    "sold_out": ("state_sold_out", "sold_out_thanks"),
    "closed": ("sale_closed_title", "sale_closed_thanks"),
}
SHUT = OVER | {"draining"}
CALLED_AGAIN_S, PAYING_AGAIN_S = 15, 3


class TypedEmail(NamedTuple):
    """The name and e-mail address that the fan typed before the API refused, and the address probably meant."""

    name: str = ""
    email: str = ""
    meant: str = ""

    @classmethod
    def of(cls, fields: Mapping[str, str], slug: str | None) -> "TypedEmail":
        """From the form's fields, with the slug of the problem."""
        email, meant = fields.get("email", ""), None
        if slug == "email-likely-mistyped" and email:
            with suppress(ValueError):
                meant = suggested_address(email)
        return cls(fields.get("name", ""), email, meant or "")


NOTHING_TYPED = TypedEmail()


class HeldCheckout(NamedTuple):
    """A hold that may be paid; `promo` is the code that was entered, and `promo_holds` whether it is valid."""

    reservation_id: str
    extended: bool
    tickets: list[str]
    bill: list[BillLine]
    total: str
    total_minor: int
    currency: str
    promo: str
    promo_holds: bool
    ways: Ways


@dataclass(slots=True)
class OwnView:
    """What `own.html` renders. `again_s`: the page refreshes itself after so long; `still`: the fan stopped that."""

    event_id: str
    step: str = "lobby"
    problem: str = ""
    waits_s: int | None = None
    left: str = ""
    key: str = ""
    limit: int = 1
    sections: list[SectionRow] | None = None
    seats: SeatPlan | None = None
    checkout: HeldCheckout | None = None
    title: str = ""
    text: str = ""
    join: str = ""
    may_join: bool = False
    orders: tuple[str, ...] = ()
    again_s: int | None = None
    still: bool = False
    typed: TypedEmail = NOTHING_TYPED


@dataclass(frozen=True, slots=True)
class OwnEventParts:
    """Makes the view of a fan's step from the fan's status and, for an admitted fan, from inventory and orders."""

    inventory: InventoryClient
    orders: OrdersClient
    seat_tables: SeatTables

    async def view(
        self, text: Words, stock: EventStock | None, token: QueueToken, status: Mapping[str, Any], *,
        query: Mapping[str, str], address: str | None,
    ) -> OwnView:  # fmt: skip
        """`query` has `section` and `page` of the seats, and `promo`. Raises the problems of inventory and orders."""
        view = OwnView(token.event_id, step=_step(status))
        if view.step == "waiting":
            view.again_s = max(1, round(status["poll_after_ms"] / 1000))
        elif view.step == "called":
            view.left, view.again_s = _left(text, status), CALLED_AGAIN_S
        elif view.step == "ended":
            _end(view, text, status)
        elif stock is not None:
            await self._inside(view, text, stock, token, status, query=query, address=address)
        return view

    async def _inside(
        self, view: OwnView, text: Words, stock: EventStock, token: QueueToken, status: Mapping[str, Any], *,
        query: Mapping[str, str], address: str | None,
    ) -> None:  # fmt: skip
        found = await self.inventory.find(token.event_id, token.holder)
        if found.reservation is None:
            view.left, view.again_s = _left(text, status), None
            view.key, view.limit = secrets.token_urlsafe(16), stock.event.limits.tickets_per_order
            view.sections = stock.rows(text)
            view.seats = await self.seat_tables.plan(text, stock, query)
        elif found.reservation.status == "paying":
            view.step, view.again_s = "ended", PAYING_AGAIN_S
            view.title, view.text = text("order_processing"), text("order_processing_text")
            view.orders = (found.reservation.order_reference,) if found.reservation.order_reference else ()
        else:
            await self._held(view, text, stock, found, promo=query.get("promo"), address=address)

    async def _held(
        self, view: OwnView, text: Words, stock: EventStock, found: FoundReservation, *, promo: str | None,
        address: str | None,
    ) -> None:  # fmt: skip
        held = found.reservation
        assert held is not None, "the caller has it"
        facts = await self.orders.checkout(ReadCheckout(
            event_id=held.event_id, holder=held.holder, reservation_id=held.reservation_id, promo_code=promo,
            address=address,
        ))  # fmt: skip
        seconds = max(0.0, (held.reserved_until_ms - now_ms()) / 1000)
        view.step, view.left, view.again_s = "held", remaining(text, seconds), None
        view.checkout = checkout(text, stock, held, facts, promo=promo or "", extended=found.extended)
        if facts.refusal is not None:
            view.problem = text(f"problem_{facts.refusal.replace('-', '_')}")


def checkout(
    text: Words, stock: EventStock, held: Reservation, facts: CheckoutFacts, *, promo: str, extended: bool
) -> HeldCheckout:
    quote, names = facts.quote, {section.section_id: section.name for section in stock.event.sections}
    return HeldCheckout(
        reservation_id=held.reservation_id, extended=extended,
        tickets=places(text, [(line.section_id, line.seat_id, line.quantity) for line in held.lines], names),
        bill=bill(text, quote.lines, quote.extras, quote.currency),
        total=text.money(quote.total_minor, quote.currency), total_minor=quote.total_minor, currency=quote.currency,
        promo=promo, promo_holds=bool(promo) and facts.refusal is None, ways=ways(text, facts.providers),
    )  # fmt: skip


def _step(status: Mapping[str, Any]) -> str:
    state = status["status"]
    if state in ("waiting", "prequeue"):
        return "ended" if status["state"] in OVER else "waiting"
    return {"ready": "called", "admitted": "choosing"}.get(state, "ended")


def _end(view: OwnView, text: Words, status: Mapping[str, Any]) -> None:
    reason = status["state"] if status["status"] in ("waiting", "prequeue") else status["status"]
    title, more = ENDS.get(f"{reason} {status.get('why')}") or ENDS.get(reason) or ("end_title", "")
    view.may_join = status["state"] not in SHUT
    view.title, view.text = text(title), text(more) if more else ""
    if reason in ("expired", "left"):
        view.text = f"{view.text} {text('join_again_text' if view.may_join else 'line_shut')}".strip()
    view.join = text("join_again_more" if reason == "completed" else "join_again")


def _left(text: Words, status: Mapping[str, Any]) -> str:
    """A countdown to the end of this step; empty if it has none."""
    return remaining(text, seconds_until(status["until"])) if status.get("until") else ""
