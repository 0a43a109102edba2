"""The parts of the pages of an event and of an order that a fan without scripts sees and uses: forms and figures of
this fan's own step, and of the own order (`web/fans/order.js`). Inventory and orders are asked for a fan who is
admitted, and the line's memory for all others.
"""

import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, NamedTuple

from features.pages.contracts import CheckoutFacts, FoundReservation, OwnOrder, ReadCheckout, ShopClient
from features.pages.forms import FormFields
from features.pages.gateway.event_page import OVER
from features.pages.gateway.formats import (
    BillLine,
    Ways,
    bill,
    moment,
    name_label,
    place,
    places,
    remaining,
    seconds_until,
    ways,
)
from features.pages.gateway.price_types import EventTypes, TicketChoice
from features.pages.gateway.stock import EventStock, SeatPlan, SeatTables, SectionRow
from shared.contracts.fields import SEAT_ID_PATTERN
from shared.contracts.inventory import Reservation
from shared.contracts.orders import LineView, OrderView
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
SEATS_MAX, SEAT = 100, re.compile(SEAT_ID_PATTERN)


class TypedEmail(NamedTuple):
    """The names and the e-mail address that the fan typed before the API refused, and the address probably meant.
    `names` are those on tickets, by their place from 1.
    """

    name: str = ""
    email: str = ""
    meant: str = ""
    names: Mapping[int, str] = MappingProxyType({})

    @classmethod
    def of(cls, fields: Mapping[str, str], slug: str | None) -> "TypedEmail":
        """From the form's fields, with the slug of the problem."""
        email, meant = fields.get("email", ""), None
        if slug == "email-likely-mistyped" and email:
            with suppress(ValueError):
                meant = suggested_address(email)
        names = {int(n): name for key, name in fields.items() if (n := key.removeprefix("name.")).isdecimal()}
        return cls(fields.get("name", ""), email, meant or "", names)


NOTHING_TYPED, NO_FORM = TypedEmail(), FormFields(b"")


class LeftAlone(NamedTuple):
    """What a choice left or would leave alone, in words, and the better seats, by id and in words."""

    alone: str
    better: list[str]
    named: str

    @classmethod
    def of(cls, query: Mapping[str, str], text: Words, sections: Mapping[str, str]) -> "LeftAlone | None":
        """As the page's address says; None if it says nothing."""
        alone, better = _seats(query.get("alone")), _seats(query.get("better"))

        def named(seats: list[str]) -> str:
            return "; ".join(places(text, [(seat.split("-")[0], seat, 1) for seat in seats], sections))

        return cls(named(alone), better, named(better)) if alone else None


def _seats(joined: str | None) -> list[str]:
    return [seat for seat in (joined or "").split(".")[:SEATS_MAX] if SEAT.fullmatch(seat)]


class HeldCheckout(NamedTuple):
    """A hold that may be paid; `promo` is the code that was entered, and `promo_holds` whether it is valid. `names` are
    the labels of the fields for names on tickets; with `one_name` the buyer's is on all of them.
    """

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
    names: list[str]
    names_note: str
    one_name: bool
    choices: list[TicketChoice]


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
    single: LeftAlone | None = None
    form: FormFields = NO_FORM
    types: EventTypes | None = None
    is_accessible: bool = False
    code_opens_places: bool = False


@dataclass(frozen=True, slots=True)
class OwnEventParts:
    """Makes the view of a fan's step from the fan's status and, for an admitted fan, from inventory and orders."""

    shop: ShopClient
    seat_tables: SeatTables

    async def view(
        self, text: Words, stock: EventStock | None, token: QueueToken, status: Mapping[str, Any], *,
        query: Mapping[str, str], address: str | None,
    ) -> OwnView:  # fmt: skip
        """`query` has `section` and `page` of the seats, seats left `alone`, `better` ones, and `promo`. Raises the
        problems of inventory and orders.
        """
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
        names = {section.section_id: section.name for section in stock.event.sections}
        view.single = LeftAlone.of(query, text, names)
        found = await self.shop.find(token.event_id, token.holder)
        view.code_opens_places = stock.event.code_opens_places
        if query.get("problem") == "no-accessible-places":
            view.problem = _accessible_left(text, query)
        if stock.event.price_types:
            view.types = EventTypes(text, stock, token.lane)
            view.problem = view.problem or view.types.refusal(query)
        if found.reservation is None:
            view.left, view.again_s = _left(text, status), None
            view.key, view.limit = secrets.token_urlsafe(16), stock.event.limits.tickets_per_order
            view.sections, view.is_accessible = stock.rows(text), stock.is_accessible
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
        facts = await self.shop.checkout(ReadCheckout(
            event_id=held.event_id, holder=held.holder, reservation_id=held.reservation_id, promo_code=promo,
            address=address,
        ))  # fmt: skip
        seconds = max(0.0, (held.reserved_until_ms - now_ms()) / 1000)
        view.step, view.left, view.again_s = "held", remaining(text, seconds), None
        view.checkout = checkout(text, stock, found, facts, promo=promo or "", types=view.types)
        if facts.refusal is not None:
            view.problem = text(f"problem_{facts.refusal.replace('-', '_')}")


def checkout(
    text: Words, stock: EventStock, found: FoundReservation, facts: CheckoutFacts, *, promo: str,
    types: EventTypes | None,
) -> HeldCheckout:  # fmt: skip
    quote, names = facts.quote, {section.section_id: section.name for section in stock.event.sections}
    tickets = [line for line in quote.lines for _ in range(line.quantity)] if quote.names == "ticket" else []
    held = found.reservation
    assert held is not None, "the caller has it"
    return HeldCheckout(
        reservation_id=held.reservation_id, extended=found.extended,
        tickets=places(text, [(line.section_id, line.seat_id, line.quantity) for line in held.lines], names),
        bill=bill(text, quote.lines, quote.extras, quote.currency),
        total=text.money(quote.total_minor, quote.currency), total_minor=quote.total_minor, currency=quote.currency,
        promo=promo, promo_holds=bool(promo) and facts.refusal is None, ways=ways(text, facts.providers),
        names=[name_label(text, n, each.section_id, each.seat_id, names) for n, each in enumerate(tickets, start=1)],
        names_note=_names_note(text, stock.event.names_until, stock.event.timezone), one_name=quote.names == "order",
        choices=_choices(text, types, held, found.prices, names) if types else [],
    )  # fmt: skip


def _names_note(text: Words, until: datetime | None, zone: str, *, one_name: bool = False) -> str:
    """What names are for, and until when they may be changed."""
    what = text("name_on_all" if one_name else "names_each")
    return f"{what} {text('names_until', time=moment(text, until, zone))}" if until else what


def _choices(
    text: Words, types: EventTypes, held: Reservation, prices: Sequence[Mapping[str, int]], names: Mapping[str, str]
) -> list[TicketChoice]:
    """Each ticket that is held with its price type. `names` are of sections."""
    return [
        types.choice(
            place(text, names.get(line.section_id, line.section_id), line.seat_id),
            f"type.{line.seat_id or line.section_id}", line.type_id, at,
        )
        for line, at in zip(held.lines, prices, strict=False)
        for _ in range(line.quantity)
    ]  # fmt: skip


def _accessible_left(text: Words, query: Mapping[str, str]) -> str:
    """How many places for wheelchair users and who comes along are left, by the page's address; else empty."""
    wheelchair, companions = query.get("wheelchair", ""), query.get("companions", "")
    if not all(each.isascii() and each.isdecimal() and len(each) < 8 for each in (wheelchair, companions)):
        return ""
    return text("access_left", wheelchair=int(wheelchair), companions=int(companions))


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


# -- orders ------------------------------------------------------------------------------------------------------------

FACES = frozenset({
    "processing", "act", "cancelling", "declined", "confirmed", "cancelled", "expired", "review", "late_paid",
    "partially_refunded", "refunded", "too_late", "unpaid", "oversold", "disputed", "taken_back",
})  # fmt: skip
PROGRESS = {
    "waiting": "step_waiting", "paying": "step_paying", "your-turn": "step_your_turn", "confirming": "step_confirming",
    "cancelling": "step_cancelling",
}  # fmt: skip
DECLINES = frozenset({"card_declined", "insufficient_funds", "expired_card", "incorrect_cvc"})
NO_PROOFS: Mapping[str, str] = MappingProxyType({})
SOLD, ENDED = frozenset({"confirmed", "partially_refunded"}), frozenset({"cancelled", "expired", "refunded"})
CHANGEABLE = SOLD | {"pending", "review"}
AGAIN_S = 3


class NameField(NamedTuple):
    """A field for a name that may be changed; of all tickets, or of this one."""

    ticket_id: str | None
    label: str
    value: str


@dataclass(slots=True)
class OwnOrderView:
    """What `own_order.html` renders; without an order this browser has no key to it."""

    reference: str
    order: OrderView | None = None
    problem: str = ""
    face: str = ""
    title: str = ""
    text: str = ""
    progress: str = ""
    left: str = ""
    key: str = ""
    event_name: str = ""
    tickets: list[str] | None = None
    bill: list[BillLine] | None = None
    total: str = ""
    sums: list[tuple[str, str]] | None = None
    ways: Ways | None = None
    has_papers: bool = False
    has_tickets: bool = False
    is_over: bool = False
    may_cancel: bool = False
    mails: str = ""
    names: list[NameField] | None = None
    names_note: str = ""
    typed: TypedEmail = NOTHING_TYPED
    again_s: int | None = None
    still: bool = False


def order_view(
    text: Words, own: OwnOrder, *, event_name: str, sections: Mapping[str, str], zone: str = "UTC",
    proofs: Mapping[str, str] = NO_PROOFS,
) -> OwnOrderView:  # fmt: skip
    """`sections` are names by id, `zone` is that of the venue; `proofs`, what is shown at the door, by price type."""
    order, face = own.order, face_of(own.order)
    known = "oversold" if face == "refunded" and order.oversold else face
    title, more = (f"order_{known}", f"order_{known}_text") if known in FACES else ("order_other", "")
    pending, sold = order.status == "pending", order.status in SOLD
    why = order.attempt.reason if face == "declined" and order.attempt else None
    words = [text(why)] if why in DECLINES else []
    sums = (("charged", order.charged_minor if order.charged_minor > order.total_minor else 0),
            ("refunded", order.refunded_minor), ("refunding", order.refunding_minor))  # fmt: skip
    return OwnOrderView(
        order.reference, order, face=face, key=secrets.token_urlsafe(16),
        title=text(title, status=order.status) if known not in FACES else text(title),
        text=" ".join([*words, text(more)] if more else words),
        progress=text(PROGRESS[order.progress]) if pending and order.progress in PROGRESS else "",
        left=remaining(text, seconds_until(order.expires_at)) if pending else "",
        event_name=event_name,
        tickets=[_ticket(text, line, sections, proofs) for line in order.lines],
        bill=bill(text, order.lines, order.extras, order.currency),
        total=text.money(order.total_minor, order.currency),
        sums=[(text(name), text.money(minor, order.currency)) for name, minor in sums if minor > 0],
        ways=ways(text, own.providers), has_papers=bool(order.confirmed_at),
        has_tickets=sold and bool(order.fulfilled_at), is_over=order.status in ENDED,
        names=_names(text, own, sections),
        names_note=_names_note(text, own.names_until, zone, one_name=own.names == "order"),
        mails=_mails(text, order), may_cancel=pending and face != "cancelling",
        again_s=AGAIN_S if _changes_by_itself(order, face) else None,
    )  # fmt: skip


def _names(text: Words, own: OwnOrder, sections: Mapping[str, str]) -> list[NameField]:
    """What the buyer may change: nothing before tickets are issued, and once it is too late."""
    order = own.order
    if own.names == "none" or not order.fulfilled_at or (own.names_until and own.names_until <= datetime.now(UTC)):
        return []
    if own.names == "order":
        name = order.customer.name or ""
        return [NameField(None, text("name_label"), name)] if order.status in CHANGEABLE else []
    valid = [(line, one) for line in order.lines for one in line.names if not one.void]
    return [
        NameField(one.ticket_id, name_label(text, n, line.section_id, line.seat_id, sections), one.name)
        for n, (line, one) in enumerate(valid, start=1)
    ]


def _ticket(text: Words, line: LineView, sections: Mapping[str, str], proofs: Mapping[str, str]) -> str:
    """A line's tickets with their price type, what is shown at the door because of it, and the names on them."""
    [words] = places(text, [(line.section_id, line.seat_id, line.quantity)], sections)
    if line.type_id is not None:
        words = text("ticket_type", place=words, type=line.type_name or line.type_id)
        proof = proofs.get(line.type_id)
        words = f"{words} · {text('ticket_proof', proof=proof)}" if proof else words
    names = text.listed(*(one.name for one in line.names))
    return text("labelled", label=words, what=names) if names else words


def _mails(text: Words, order: OrderView) -> str:
    """Where mail goes, or that it could not be sent; nothing for an order that has ended."""
    if order.status not in CHANGEABLE or not order.customer.email:
        return ""
    return text("address_mail_failed" if order.mail_failed else "address_mails_to", email=order.customer.email)


def face_of(order: OrderView) -> str:
    """Which of the pages of an order this is."""
    if order.status == "cancelled" and order.end_reason == "capture":
        return "unpaid"
    if order.status == "refunded" and not order.confirmed_at:
        return "too_late"
    if order.status == "refunded" and order.disputed_minor > 0:
        return "taken_back"
    if order.status == "review" and order.dispute:
        return "disputed"
    if order.status != "pending":
        return order.status
    if order.cancel_asked:
        return "cancelling"
    if order.attempt and order.attempt.status in ("failed", "cancelled"):
        return "declined"
    return "act" if order.attempt and order.attempt.checkout_url else "processing"


def _changes_by_itself(order: OrderView, face: str) -> bool:
    """Not while the fan has to choose, and not once it is sold with its tickets. A fan who comes back from the
    provider's page is often faster than the provider's message.
    """
    if order.status == "pending":
        return face in ("processing", "cancelling", "act")
    return order.status in ("late_paid", "review") or (order.status in SOLD and not order.fulfilled_at)
