"""The update of one order as data: all that one step, or one request, changes about it. No I/O and no clock.

`store.save` writes an update whole or not at all: if another process owns the order now, or something was asked of it
since it was read, nothing is written.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

from services.orders.model.order import (
    ENTRIES_MAX,
    LIVE_STATUSES,
    MISMATCH,
    REPLAY_OF,
    SALE_STATUSES,
    Attempt,
    Charge,
    JournalEntry,
    OpenOrder,
    Order,
    attempt_after,
    can_become,
)
from services.orders.model.rules import (
    DISPUTE_LOST,
    DISPUTE_WON,
    DISPUTED,
    OUTSIDE,
    REFUNDED_OUTSIDE,
    outside_refund_row,
    tickets_left,
)
from services.orders.model.rules import Ticket as TicketsOfLine
from shared.contracts.frames import Event
from shared.payment_provider import ProviderCharge

Row = dict[str, Any]


class Release(NamedTuple):
    """Ends a run: the order is due again in `due_in_s` seconds, or closed if None: nothing is left to do for it."""

    due_in_s: float | None
    errors: int = 0


@dataclass(slots=True)
class OrderUpdate:
    """New values of `fields`, and `rows` of the tables that hang on the order, each with its part of `save.sql`.
    Without a `claim` it is written by a request, which holds the row of the open order (`store.change`). `at_ms` is the
    time of what it enters in the journal. Without `bumps_version` nothing visible changed.
    """

    order: Order
    claim: OpenOrder | None = None
    at_ms: int = 0
    bumps_version: bool = True
    synced: bool = False
    release: Release | None = None
    fields: Row = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    rows: list[tuple[str, Row]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.at_ms = self.at_ms or self.order.now_ms

    def set_order(self, **fields: Any) -> Self:
        """Sets these fields of the order. A new status is one that may follow, and clears the decision in review."""
        if "status" in fields:
            before, to = self.order.status, fields["status"]
            assert can_become(before, to), f"{before} never becomes {to}"
            fields.setdefault("review_decision", None)
        self.fields |= fields
        return self

    def now(self, name: str) -> Any:
        """This field of the order, as it is with this update."""
        return self.fields.get(name, getattr(self.order, name))

    def after(self, **written: Any) -> Order:
        """The order as it is with this update, and with what the database has `written`. Of its money only new charges
        are in it: refunds and disputes are read anew.
        """
        requested = self.order.sync_requested and not self.synced
        return replace(self.order, **{"sync_requested": requested, "sync_due": False, **self.fields, **written})

    @property
    def changed(self) -> Row:
        """The fields that differ from the order as it was read."""
        return {name: value for name, value in self.fields.items() if value != getattr(self.order, name)}

    @property
    def has_news(self) -> bool:
        """Whether it changes the order, or the provider moved money."""
        return bool(self.rows or self.changed)

    def add_row(self, part: str, **row: Any) -> Self:
        """Adds a row of a table that hangs on the order. A money entry is unique by the provider's id, so writing it
        again is harmless.
        """
        self.rows.append((part, row))
        return self

    def set_attempt(self, attempt: Attempt, **changes: Any) -> Self:
        """A live attempt that fails also ends its checkout command."""
        after = replace(attempt, **changes)
        attempts = self.now("attempts")
        if after == attempts[attempt.n - 1]:
            return self
        after = replace(after, changed_at_ms=self.at_ms)
        if after.status == "failed" and attempt.status in LIVE_STATUSES:
            self.finish_command("checkout", error=after.reason or "failed")
        return self.set_order(attempts=(*attempts[: attempt.n - 1], after, *attempts[attempt.n :]))

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
                if ours not in self.order.charges:
                    entered = replace(ours, refunded_minor=charge.refunded_minor or 0)
                    self.set_order(charges=(*self.now("charges"), entered))
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
        self.request_refund(row).add_row(
            "money", kind="refund", provider=ours.provider, amount_minor=amount_minor, currency=ours.currency,
            charge_ref=ours.charge_ref, provider_ref=row["idem_key"],
        )  # fmt: skip
        if is_over:
            self.set_order(status="refunded", end_reason=None).void_tickets(reason=OUTSIDE)
        elif is_sale and not waiting:
            self.send_to_review(REFUNDED_OUTSIDE)
        elif is_sale and order.status == "confirmed":
            self.set_order(status="partially_refunded")
        if is_sale:
            self.emit(
                "refunded", amount_minor=amount_minor,
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
            self.add_row(
                "money", kind="dispute" if moved_minor > 0 else "reinstatement", provider=ours.provider,
                amount_minor=abs(moved_minor), currency=ours.currency, charge_ref=ours.charge_ref,
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
            self.set_order(status="review")
        return self.set_order(end_reason=reason, review_decision=None)

    def begin_command(
        self, kind: str, *, caused_by: str, payload: Row | None = None, tries: int = 0, error: str | None = None
    ) -> Self:
        """Opens a command that a later step will end."""
        return self._enter(
            JournalEntry(
                type=kind,
                by=caused_by,
                status="processing",
                tries=tries,
                at_ms=self.at_ms,
                error=error,
                payload=payload,
            )
        )

    def record_failed_try(self, kind: str, *, error: str, caused_by: str | None) -> Self:
        """Counts a failed try of the open commands of this kind; with `caused_by` one is opened if there is none."""
        if self._has_open(kind):
            return self.set_order(
                journal=tuple(
                    replace(command, tries=command.tries + 1, error=error)
                    if command.is_open and command.type == kind
                    else command
                    for command in self.now("journal")
                )
            )
        return self.begin_command(kind, caused_by=caused_by, tries=1, error=error) if caused_by else self

    def finish_command(
        self, kind: str, *, error: str | None = None, caused_by: str | None = None, place: int | None = None
    ) -> Self:
        """Ends the open commands of this kind, or only the one at `place`; all that repeat others if the kind is
        `rerun`. With `caused_by` a command is recorded even if none was open.
        """
        ended: Row = {"status": "failed" if error else "completed", "done_at_ms": self.at_ms, "error": error}
        had_open = self._has_open(kind)

        def is_meant(n: int, command: JournalEntry) -> bool:
            replays = kind == "rerun" and REPLAY_OF in (command.payload or {})
            return command.is_open and (command.type == kind or replays) and place in (None, n)

        journal = tuple(
            replace(command, tries=command.tries + 1, **ended) if is_meant(n, command) else command
            for n, command in enumerate(self.now("journal"), start=1)
        )
        self.set_order(journal=journal)
        if caused_by is None or had_open:
            return self
        return self._enter(JournalEntry(type=kind, by=caused_by, tries=1, at_ms=self.at_ms, **ended))

    def _has_open(self, kind: str) -> bool:
        return any(command.is_open and command.type == kind for command in self.now("journal"))

    def _enter(self, new: JournalEntry) -> Self:
        """Adds a command. In a full journal the last of its kind is opened again."""
        journal = self.now("journal")
        if len(journal) < ENTRIES_MAX:
            return self.set_order(journal=(*journal, new))
        last = max((n for n, command in enumerate(journal) if command.type == new.type), default=len(journal) - 1)
        again = replace(new, at_ms=journal[last].at_ms, tries=journal[last].tries + new.tries)
        return self.set_order(journal=(*journal[:last], again, *journal[last + 1 :]))

    def void_tickets(self, *, reason: str, line_no: int | None = None, beyond: int = 0) -> Self:
        """Voids the tickets of `line_no` (all lines if None) except the first `beyond` of each line."""
        lines = tuple(
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
            for line in self.now("lines")
        )
        return self.set_order(lines=lines)

    def queue_mail(self, kind: str, *, about: str = "", **facts: Any) -> Self:
        """Queues a mail to the address that the order has by then; `about` distinguishes mails of one kind."""
        key = ":".join(filter(None, (kind, self.order.reference, about)))
        budget = None if self.order.total_minor else "own"
        return self.add_row("mails", mail_key=key, kind=kind, event_id=self.order.event_id, budget=budget, **facts)

    def emit(self, kind: str, **after: Any) -> Self:
        """Adds the event `order.<kind>` to the outbox, in the same transaction; the order has its new status by now,
        and its lines what of their tickets went back.
        """
        version, before = self.order.version + len(self.events) + 1, {"status": self.order.status}
        if any(returned := [line.returned for line in self.now("lines")]):
            after["returned"] = returned
        self.events.append(
            order_event(self.order, kind, version=version, before=before, status=self.now("status"), **after)
        )
        return self

    def request_refund(self, row: Row) -> Self:
        """Requests this refund; its tickets are being refunded from now on."""
        return self.return_tickets(row.get("tickets", ()), sign=1).add_row("refunds_requested", **row)

    def return_tickets(self, tickets: Sequence[TicketsOfLine], *, sign: int) -> Self:
        """These tickets are being refunded; or, with a negative sign, stay with the customer after all."""
        back: Counter[int] = Counter()
        for ticket in tickets:
            back[ticket["line_no"]] += sign * ticket["quantity"]
        lines = tuple(
            replace(line, returned=min(line.quantity, line.returned + back[line.line_no])) for line in self.now("lines")
        )
        return self.set_order(lines=lines)


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


def order_event(
    order: Order, kind: str, *, version: int = 0, actor: str = "system", before: Row | None = None, **after: Any
) -> Event:
    """`order.<kind>` with all that consumers need to act without a request."""
    return Event(
        type=f"order.{kind}",
        event_id=order.event_id,
        actor=actor,
        aggregate=f"order:{order.reference}",
        version=version,
        before=before,
        after={
            "reference": order.reference, "event_id": order.event_id, "holder": order.holder, "lane": order.lane,
            "join_seq": order.join_seq, "reservation_id": order.reservation_id, "total_minor": order.total_minor,
            "currency": order.currency, **after,
        },
    )  # fmt: skip
