"""The update of one order as data: all that one step, or one request, changes about it. No I/O and no clock.

`store.save` writes an update whole or not at all: if another process owns the order now, or something was asked of it
since it was read, nothing is written.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Self, TypedDict, Unpack

from services.orders.model.next_step import DISPUTE_LOST, DISPUTE_WON, DISPUTED, REFUNDED_OUTSIDE
from services.orders.model.order import (
    LIVE_STATUSES,
    MISMATCH,
    SALE_STATUSES,
    Attempt,
    Charge,
    Journal,
    Order,
    OrderLine,
    Refund,
    attempt_after,
    can_become,
    ended,
    opened,
    tried,
)
from services.orders.model.refund_plan import OUTSIDE, outside_refund_row, refund_row, tickets_left
from services.orders.model.refund_plan import Ticket as TicketsOfLine
from services.orders.providers.provider import ProviderCharge
from shared.contracts.frames import Event

Row = dict[str, Any]


class Ownership(NamedTuple):
    """The right of a process to change an open order. `epoch` rises each time that another process takes it over."""

    reference: str
    owner: str
    epoch: int


class Release(NamedTuple):
    """Ends a run: the order is due again in `due_in_s` seconds, or closed if None: nothing is left to do for it."""

    due_in_s: float | None
    errors: int = 0


class OrderColumns(TypedDict, total=False):
    """What an update sets in the order's row: `confirmed`, `fulfilled`, `ended`, `released`, `extended` and
    `cancel_requested` are set to the present time. A new status (`to`) clears the review decision, and so does
    `clear_decision`; an empty `end_reason` clears it, and so does a new `customer_email` what mail could not reach.
    """

    to: str
    end_reason: str
    charge_ref: str
    dispute: str
    confirmed: Literal[True]
    fulfilled: Literal[True]
    ended: Literal[True]
    released: Literal[True]
    clear_decision: Literal[True]
    review_decision: str
    cancel_requested: Literal[True]
    extended: Literal[True]
    expires_at_ms: int
    customer_email: str


@dataclass(slots=True)
class OrderUpdate:
    """Without a `claim` it is written by a request, which holds the row of the open order (`store.change`). `at_ms` is
    the time of what it enters in the journal. Without `bumps_version` nothing visible changed.
    """

    order: Order
    claim: Ownership | None = None
    at_ms: int = 0
    bumps_version: bool = True
    synced: bool = False
    release: Release | None = None
    columns: OrderColumns = field(default_factory=OrderColumns)
    attempts: dict[int, Attempt] = field(default_factory=dict)
    new_attempts: list[Attempt] = field(default_factory=list)
    lines: tuple[OrderLine, ...] = ()
    journal: Journal = ()
    charges: list[Charge] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    money: list[Row] = field(default_factory=list)
    refunds_requested: list[Row] = field(default_factory=list)
    refunds_done: list[Row] = field(default_factory=list)
    mails: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lines, self.journal = self.order.lines, self.order.journal
        self.at_ms = self.at_ms or self.order.now_ms

    def set_order(self, **columns: Unpack[OrderColumns]) -> Self:
        to = columns.get("to")
        assert to is None or can_become(self.order.status, to), f"{self.order.status} never becomes {to}"
        self.columns |= columns
        return self

    def set_attempt(self, attempt: Attempt, **changes: Any) -> Self:
        """A live attempt that fails also ends its checkout command."""
        self.attempts[attempt.n] = after = replace(attempt, changed_at_ms=self.at_ms, **changes)
        if after.status == "failed" and attempt.status in LIVE_STATUSES:
            self.finish_command("checkout", error=after.reason or "failed")
        return self

    def record_charges(self, provider: str, charges: Sequence[ProviderCharge]) -> Self:
        """Applies the provider's answer: attempts only move forward, and money that moved is entered once, also what
        was refunded or withdrawn at the provider itself.
        """
        known = {charge.charge_ref: charge for charge in self.order.charges if charge.provider == provider}
        status = {attempt.provider_key: attempt.status for attempt in self.order.attempts}
        reported: dict[str, ProviderCharge] = {}
        for charge in charges:
            if charge.reference != self.order.reference:
                continue
            if charge.key in status:
                status[charge.key] = attempt_after(status[charge.key], charge.status)
                reported[charge.key] = charge
            if charge.status == "succeeded":
                ours = known.get(charge.charge_ref) or _new_charge(provider, charge)
                self.charges.append(replace(ours, refunded_minor=charge.refunded_minor or 0))
                self._record_outside_refund(ours, charge)
                self._record_dispute(ours, charge)
        for attempt in self.order.attempts:
            if last := reported.get(attempt.provider_key):
                self.set_attempt(
                    attempt, status=status[attempt.provider_key], provider_ref=last.charge_ref,
                    checkout_url=last.checkout_url, **_attempt_outcome(attempt, last),
                )  # fmt: skip
        return self

    def _record_outside_refund(self, ours: Charge, theirs: ProviderCharge) -> None:
        """Enters what the provider refunded beyond what we know of. A sale that is refunded in full thereby is over:
        its tickets are void and their places stay blocked. One that is refunded in part goes to review, unless a
        refund of ours is under way.
        """
        order = self.order
        waiting = [refund for refund in order.refunds if refund.charge_ref == ours.charge_ref]
        done_minor = ours.refunded_minor - sum(refund.amount_minor for refund in waiting)
        amount_minor = (theirs.refunded_minor or 0) - done_minor
        if amount_minor <= 0:
            return
        is_sale = self._pays_for_sale(ours) and order.status != "refunded"
        is_over = is_sale and done_minor + amount_minor >= ours.amount_minor
        row = outside_refund_row(ours, amount_minor=amount_minor, tickets=tickets_left(order) if is_over else [])
        self.request_planned_refund(row)
        self.add_money_entry(
            "refund", ours.provider, amount_minor=amount_minor, currency=ours.currency, charge_ref=ours.charge_ref,
            provider_ref=row["idem_key"],
        )  # fmt: skip
        if is_over:
            self.set_order(to="refunded", end_reason="").void_tickets(reason=OUTSIDE)
        elif is_sale and not waiting:
            self.send_to_review(REFUNDED_OUTSIDE)
        elif is_sale and order.status == "confirmed":
            self.set_order(to="partially_refunded")
        if is_sale:
            self.emit(
                "refunded", status=self.columns.get("to", order.status), amount_minor=amount_minor,
                refunded_minor=order.refunded_minor + amount_minor, charged_minor=order.charged_minor, reason=OUTSIDE,
            )  # fmt: skip

    def _record_dispute(self, ours: Charge, theirs: ProviderCharge) -> None:
        """Enters the money that a dispute moved. A person decides about the tickets when the sale's dispute is opened
        or lost, and about the money when it comes back after the tickets were given up.
        """
        order, dispute = self.order, theirs.dispute
        if dispute is None:
            return
        if moved_minor := dispute.withdrawn_minor - ours.disputed_minor:
            self.add_money_entry(
                "dispute" if moved_minor > 0 else "reinstatement", ours.provider, amount_minor=abs(moved_minor),
                currency=ours.currency, charge_ref=ours.charge_ref,
                provider_ref=f"{dispute.dispute_ref}:{ours.dispute_entries}",
            )  # fmt: skip
        if dispute.status == order.dispute or not self._pays_for_sale(ours):
            return
        self.set_order(dispute=dispute.status)
        if dispute.status == "open":
            self.send_to_review(DISPUTED)
        elif dispute.status == "lost" and order.has_tickets:
            self.send_to_review(DISPUTE_LOST)
        elif dispute.status == "won" and not order.has_tickets and ours.refunded_minor < ours.amount_minor:
            self.send_to_review(DISPUTE_WON)

    def _pays_for_sale(self, charge: Charge) -> bool:
        is_sold = self.order.status in SALE_STATUSES or (self.order.status == "review" and self.order.was_sold)
        return is_sold and charge.charge_ref == self.order.charge_ref

    def send_to_review(self, reason: str) -> Self:
        """Lets a person decide; an order that is in review already stays there, for this reason."""
        if self.order.status != "review":
            self.set_order(to="review")
        return self.set_order(end_reason=reason, clear_decision=True)

    def expected_order(self) -> Order:
        """The order with the attempts and charges of this update, before they are written."""
        return replace(self.order, **self._expected())

    def _expected(self) -> dict[str, Any]:
        known = {charge.charge_ref for charge in self.order.charges}
        charges = (*self.order.charges, *(charge for charge in self.charges if charge.charge_ref not in known))
        return {"attempts": self.attempts_after, "charges": charges, "sync_requested": False, "sync_due": False}

    def after(
        self, version: int | None = None, confirmed_at_ms: int | None = None, fulfilled_at_ms: int | None = None
    ) -> Order:
        """The order as it is once this is written: at once, or with what the database set. Of its money only new
        charges are in it: refunds and disputes are read anew.
        """
        order, columns = self.order, self.columns
        now, to = self.at_ms, columns.get("to")
        decided = None if to or "clear_decision" in columns else columns.get("review_decision", order.review_decision)
        confirmed_at_ms = confirmed_at_ms or (now if "confirmed" in columns else order.confirmed_at_ms)
        fulfilled_at_ms = fulfilled_at_ms or (now if "fulfilled" in columns else order.fulfilled_at_ms)
        return replace(
            order, **self._expected(), lines=self.lines, journal=self.journal, version=version or order.version,
            status=to or order.status,
            end_reason=columns.get("end_reason", order.end_reason) or None, review_decision=decided,
            charge_ref=columns.get("charge_ref", order.charge_ref), dispute=columns.get("dispute", order.dispute),
            confirmed_at_ms=confirmed_at_ms, fulfilled_at_ms=fulfilled_at_ms,
            ended_at_ms=now if "ended" in columns else order.ended_at_ms,
            released=order.released or "released" in columns, extended=order.extended or "extended" in columns,
            cancel_requested=order.cancel_requested or "cancel_requested" in columns,
            expires_at_ms=columns.get("expires_at_ms", order.expires_at_ms),
            customer_email=columns.get("customer_email", order.customer_email),
        )  # fmt: skip

    @property
    def changes_payment(self) -> bool:
        """Whether attempts or charges of this update differ from those that were read, or the provider moved money."""
        after = self.expected_order()
        return (_reported(after), after.charges) != (_reported(self.order), self.order.charges) or self.changes_rows

    @property
    def changes_rows(self) -> bool:
        """Whether anything but attempts and charges is to be written."""
        kept = (self.lines, self.journal) == (self.order.lines, self.order.journal)
        parts = self.money, self.refunds_requested, self.refunds_done, self.mails, self.new_attempts
        return bool(not kept or any(parts) or self.columns)

    def add_money_entry(self, kind: str, provider: str, **entry: Any) -> Self:
        """Adds a money entry. The provider's id makes it unique, so writing it again is harmless."""
        self.money.append({"kind": kind, "provider": provider, **entry})
        return self

    def finish_command(
        self, kind: str, *, error: str | None = None, caused_by: str | None = None, place: int | None = None
    ) -> Self:
        """Ends the open commands of this kind, or only the one at `place`. With `caused_by` a command is recorded even
        if none was open.
        """
        self.journal = ended(self.journal, kind, at_ms=self.at_ms, error=error, by=caused_by, place=place)
        return self

    def begin_command(self, kind: str, *, caused_by: str, payload: Row | None = None) -> Self:
        """Opens a command that a later step will end."""
        self.journal = opened(self.journal, kind, by=caused_by, at_ms=self.at_ms, payload=payload)
        return self

    def record_failed_try(self, kind: str, *, error: str, caused_by: str | None) -> Self:
        """Counts a failed try of the open command; with `caused_by` one is opened if there is none."""
        self.journal = tried(self.journal, kind, by=caused_by, error=error, at_ms=self.at_ms)
        return self

    def add_attempt(self, attempt: Attempt) -> Self:
        """Another try to charge the order."""
        self.new_attempts.append(attempt)
        return self

    def request_refund(self, charge: Charge, *, reason: str, requested_by: str) -> Self:
        """Requests a refund of all that is left of this charge."""
        return self.request_planned_refund(refund_row(charge, reason=reason, requested_by=requested_by))

    def finish_refund(self, refund: Refund, *, status: str) -> Self:
        """`succeeded` or `refused`. Tickets of a refused refund stay with the customer."""
        if status == "refused":
            self._return_tickets(refund.tickets, sign=-1)
        self.refunds_done.append({"id": refund.id, "status": status})
        return self

    def reduce_refund(self, refund: Refund, *, left_minor: int) -> Self:
        """Requests only what is left, under another key, as its amount is another; nothing left is done at once."""
        status, idem_key = "requested" if left_minor else "succeeded", f"{refund.idem_key}:{left_minor}"
        self.refunds_done.append({"id": refund.id, "status": status, "amount_minor": left_minor, "idem_key": idem_key})
        return self

    def finish_return(self, refund_id: int, *, outcome: str) -> Self:
        """Stores what inventory answered about the tickets of this refund."""
        self.refunds_done.append({"id": refund_id, "returned": outcome})
        return self

    def void_tickets(self, *, reason: str, line_no: int | None = None, beyond: int = 0) -> Self:
        """Voids the tickets of `line_no` (all lines if None) except the first `beyond` of each line."""
        self.lines = tuple(
            replace(
                line,
                tickets=tuple(
                    replace(ticket, void_at_ms=self.at_ms, void_reason=reason)
                    if n > beyond and ticket.void_at_ms is None
                    else ticket
                    for n, ticket in enumerate(line.tickets, start=1)
                ),
            )
            if line_no in (None, line.line_no)
            else line
            for line in self.lines
        )
        return self

    def queue_mail(self, kind: str, *, about: str = "", **facts: Any) -> Self:
        """Queues a mail to the address that the order has by then; `about` distinguishes mails of one kind."""
        key = ":".join(filter(None, (kind, self.order.reference, about)))
        budget = None if self.order.total_minor else "own"
        self.mails.append({"mail_key": key, "kind": kind, "event_id": self.order.event_id, "budget": budget, **facts})
        return self

    def emit(self, kind: str, *, status: str, **after: Any) -> Self:
        """Adds the event `order.<kind>` to the outbox, in the same transaction."""
        version = self.order.version + len(self.events) + 1
        self.events.append(order_event(self.order, kind, version=version, status=status, **after))
        return self

    def request_planned_refund(self, row: Row) -> Self:
        """Requests this refund; its tickets are being refunded from now on."""
        self._return_tickets(row.get("tickets", []), sign=1)
        self.refunds_requested.append(row)
        return self

    def _return_tickets(self, tickets: Sequence[TicketsOfLine], *, sign: int) -> None:
        back: Counter[int] = Counter()
        for ticket in tickets:
            back[ticket["line_no"]] += sign * ticket["quantity"]
        self.lines = tuple(
            replace(line, returned=min(line.quantity, line.returned + back[line.line_no]))
            if line.line_no in back
            else line
            for line in self.lines
        )

    @property
    def attempts_after(self) -> tuple[Attempt, ...]:
        """All attempts as they are with this update."""
        known = tuple(self.attempts.get(attempt.n, attempt) for attempt in self.order.attempts)
        return known + tuple(self.new_attempts)


def _reported(order: Order) -> list[Attempt]:
    """The attempts without the times at which they changed."""
    return [replace(attempt, changed_at_ms=0) for attempt in order.attempts]


def _new_charge(provider: str, charge: ProviderCharge) -> Charge:
    return Charge(
        provider=provider, charge_ref=charge.charge_ref, amount_minor=charge.amount_minor, currency=charge.currency,
        occurred_at_ms=charge.occurred_at_ms, refunded_minor=0,
    )  # fmt: skip


def _attempt_outcome(attempt: Attempt, charge: ProviderCharge) -> Row:
    """The reason of a failure. An authorisation resets the error count; one of another amount or currency is a
    mismatch.
    """
    if charge.status != "authorised":
        return {"reason": charge.reason}
    is_ours = (charge.amount_minor, charge.currency) == (attempt.amount_minor, attempt.currency)
    return {"reason": None if is_ours else MISMATCH} | ({} if attempt.status == "authorised" else {"errors": 0})


def order_event(order: Order, kind: str, *, version: int, status: str, **after: Any) -> Event:
    """`order.<kind>` with all that consumers need to act without a request."""
    return Event(
        type=f"order.{kind}",
        event_id=order.event_id,
        aggregate=f"order:{order.reference}",
        version=version,
        before={"status": order.status},
        after={
            "reference": order.reference, "event_id": order.event_id, "status": status, "holder": order.holder,
            "lane": order.lane, "join_seq": order.join_seq, "reservation_id": order.reservation_id,
            "total_minor": order.total_minor, "currency": order.currency, **after,
        },
    )  # fmt: skip
