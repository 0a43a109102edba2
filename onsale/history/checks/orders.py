"""Orders that were acknowledged exist, keep what was said of them, and what has ended stays ended.

A confirmed order stays confirmed until a person asks for its refund, here or at the provider, or disputes its payment.
One that was cancelled by its fan or an operator is never confirmed; one that expired, or whose payment failed, only if
its provider took the money in time after all.
"""

import math
from collections.abc import Iterator
from typing import Any

from onsale.history.checks.books import Books
from onsale.history.checks.check import Check, Line

SOLD = frozenset({"confirmed", "partially_refunded"})
GIVEN_BACK = frozenset({"partially_refunded", "refunded", "review"})
OVER = frozenset({"cancelled", "expired"})
BY_PEOPLE = frozenset({"fan", "operator"})
REFUNDS = frozenset({"refund_requested", "resolved"})


class _Order:
    """What was acknowledged of one order."""

    __slots__ = (
        "by_people", "cancelled", "confirmed", "currency", "ended_ms", "fan", "number", "over", "refund",
        "refund_answered", "reservation_id", "tickets", "total_minor",
    )  # fmt: skip

    def __init__(self, number: int) -> None:
        self.number = number
        self.fan = self.reservation_id = self.currency = None
        self.total_minor: int | None = None
        self.confirmed: int | None = None  # the line that said so, as of the others
        self.over: int | None = None
        self.ended_ms = math.inf  # when the first answer with an end came
        self.by_people = False
        self.refund: int | None = None
        self.refund_answered: int | None = None
        self.cancelled: int | None = None
        self.tickets: tuple[int, frozenset[str]] | None = None


class Orders(Check):
    """Every order that the history names is compared with its row."""

    TITLE = "orders are kept"
    KINDS = frozenset({
        "ordered", "order", "order_frame", "payment_started", "order_extended", "cancel_requested", "refund_requested",
        "resolved", "event_refund_requested", "tickets", "unanswered",
    })  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self._orders: dict[str, _Order] = {}
        self._refunded_events: set[str] = set()

    def read(self, number: int, line: Line) -> None:
        what = line["what"]
        if what == "event_refund_requested" or line.get("of", "").endswith("/admin/orders/events/{event_id}/refund"):
            self._refunded_events.add(line["event_id"])
        reference = line.get("reference")
        if reference is None:
            return
        if what == "unanswered":
            if (order := self._orders.get(reference)) and line["of"].startswith("POST /admin/orders"):
                order.refund = order.refund or number
            return
        order = self._orders.setdefault(reference, _Order(number))
        self.compared += 1
        if what in REFUNDS or (what == "cancel_requested" and "fan" not in line):
            order.refund = order.refund or number
        if what == "refund_requested":
            order.refund_answered = number
        if what == "tickets":
            self._tickets(reference, order, number, line)
            return
        self._facts(reference, order, number, line)
        self._status(reference, order, number, line)

    def _facts(self, reference: str, order: _Order, number: int, line: Line) -> None:
        """What never changes: price, currency, reservation."""
        for name in ("total_minor", "currency", "reservation_id"):
            known, now = getattr(order, name), line.get(name)
            if known is None:
                setattr(order, name, now)
            elif now is not None and now != known:
                self.violated(f"{name} of order {reference} changed from {known} to {now}", order.number, number)
        if line["what"] == "ordered":
            order.fan = line.get("fan")

    def _status(self, reference: str, order: _Order, number: int, line: Line) -> None:
        status = line.get("status")
        is_later = line["sent_ms"] >= order.ended_ms and line["what"] != "order_frame"  # a frame may be an old one
        if status in SOLD | OVER:
            order.ended_ms = min(order.ended_ms, line["at_ms"])
        if status in SOLD:
            order.confirmed = order.confirmed or number
        elif status in OVER:
            if order.confirmed and is_later:
                self.violated(f"order {reference} was confirmed and is {status}", order.confirmed, number)
            order.over, order.by_people = number, order.by_people or line.get("end_reason") in BY_PEOPLE
        elif status == "pending" and is_later:
            self.violated(f"order {reference} had ended and is pending", order.confirmed or order.over or 0, number)

    def _tickets(self, reference: str, order: _Order, number: int, line: Line) -> None:
        now = frozenset(ticket["ticket_id"] for ticket in line["tickets"])
        if order.tickets is not None and order.tickets[1] and order.tickets[1] != now:
            self.violated(f"order {reference} has other tickets than before", order.tickets[0], number)
        order.tickets = number, now

    # -- the database --------------------------------------------------------------------------------------------

    async def compare(self, books: Books) -> None:
        missing, sold = set(self._orders), dict[str, str]()
        async for row in books.rows_of("orders", "orders", self._orders):
            missing.discard(row["reference"])
            order = self._orders[row["reference"]]
            lines = [number for number in (order.number, order.confirmed, order.over) if number]
            for sentence in (*self._wrong_facts(order, row), *self._wrong_end(order, row)):
                self.violated(f"order {row['reference']} {sentence}", *lines)
            if row["status"] in SOLD:
                sold[row["reservation_id"]] = row["reference"]
        for reference in sorted(missing):
            self.violated(f"order {reference} is not stored", self._orders[reference].number)
        async for row in books.rows_of("inventory", "reservations", sold):
            reference = sold.pop(row["reservation_id"])
            order = self._orders[reference]
            if row["status"] != "confirmed" and not self._may_be_refunded(order, row["event_id"]):
                self.violated(f"order {reference} is sold, its places are {row['status']}", order.number)
        for reference in sorted(sold.values()):
            self.violated(f"order {reference} is sold, its places are unknown", self._orders[reference].number)

    def _wrong_facts(self, order: _Order, row: Any) -> Iterator[str]:
        if row["status"] == "tombstone":
            yield "is not stored"
            return
        for name in ("total_minor", "currency", "reservation_id"):
            known = getattr(order, name)
            if known is not None and known != row[name]:
                yield f"was acknowledged with {name} {known}, and has {row[name]}"
        if order.fan is not None and row["owner_id"] != f"{row['event_id']}:{order.fan}":
            yield "belongs to another fan"
        if order.tickets is not None and not order.tickets[1] <= set(row["tickets"]):
            yield "has lost tickets"

    def _wrong_end(self, order: _Order, row: Any) -> Iterator[str]:
        status, sold = row["status"], row["status"] in SOLD | {"refunded"}
        if order.confirmed:
            refundable = self._may_be_refunded(order, row["event_id"]) or row["refunded_by_people"] or row["disputed"]
            if status in GIVEN_BACK and not refundable:
                yield f"was confirmed and is {status}, and nobody asked for a refund"
            elif status not in SOLD | GIVEN_BACK and not (status == "cancelled" and row["authorised_only"]):
                yield f"was confirmed and is {status}"
        elif order.over and sold and status != "refunded":
            if order.by_people and row["review_decision"] is None and not order.refund:
                yield f"was cancelled and is {status}"
            elif not row["paid_in_time"]:
                yield f"had ended and is {status}, and was not paid in time"
        if order.refund_answered and not row["refunds"]:
            yield "has no refund, and one was acknowledged"

    def _may_be_refunded(self, order: _Order, event_id: str) -> bool:
        return order.refund is not None or event_id in self._refunded_events
