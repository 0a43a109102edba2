"""The part of an order's page that a fan without scripts sees and uses (`web/fans/order.js`)."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from services.gateway.fan_pages.formats import BillLine, Ways, bill, places, remaining, seconds_until, ways
from services.gateway.fan_pages.own_event import NOTHING_TYPED, TypedEmail
from shared.contracts.orders import OrderView, OwnOrder
from shared.words.words import Words

FACES = frozenset({
    "processing", "act", "cancelling", "declined", "confirmed", "cancelled", "expired", "review", "late_paid",
    "partially_refunded", "refunded", "too_late", "unpaid", "oversold", "disputed", "taken_back",
})  # fmt: skip
STEPS = {
    "waiting": "step_waiting", "paying": "step_paying", "your-turn": "step_your_turn", "confirming": "step_confirming",
    "cancelling": "step_cancelling",
}  # fmt: skip
DECLINES = frozenset({"card_declined", "insufficient_funds", "expired_card", "incorrect_cvc"})
SOLD, OVER = frozenset({"confirmed", "partially_refunded"}), frozenset({"cancelled", "expired", "refunded"})
CHANGEABLE = SOLD | {"pending", "review"}
AGAIN_S = 3


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
    typed: TypedEmail = NOTHING_TYPED
    again_s: int | None = None
    still: bool = False


def order_view(text: Words, own: OwnOrder, *, event_name: str, sections: Mapping[str, str]) -> OwnOrderView:
    """`sections` are names by id."""
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
        progress=text(STEPS[order.progress]) if pending and order.progress in STEPS else "",
        left=remaining(text, seconds_until(order.expires_at)) if pending else "",
        event_name=event_name,
        tickets=places(text, [(line.section_id, line.seat_id, line.quantity) for line in order.lines], sections),
        bill=bill(text, order.lines, order.extras, order.currency),
        total=text.money(order.total_minor, order.currency),
        sums=[(text(name), text.money(minor, order.currency)) for name, minor in sums if minor > 0],
        ways=ways(text, own.providers), has_papers=bool(order.confirmed_at),
        has_tickets=sold and bool(order.fulfilled_at), is_over=order.status in OVER,
        mails=_mails(text, order), may_cancel=pending and face != "cancelling",
        again_s=AGAIN_S if _changes_by_itself(order, face) else None,
    )  # fmt: skip


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
