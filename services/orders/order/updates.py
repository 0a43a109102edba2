"""The update of one leased order as data, and the statement that writes the updates of many orders.

An update is written whole or not at all: if the lease was lost, the row holds another worker's lease and nothing is
written. Orders written together do not share a fate: if their statement fails, each half is written by itself.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple, Self, TypedDict, Unpack

import orjson

from services.orders.mail.tables import mail
from services.orders.order.next_step import (
    DISPUTE_LOST,
    DISPUTE_WON,
    DISPUTED,
    MISMATCH,
    REFUNDED_OUTSIDE,
    Attempt,
    Charge,
    Order,
    Refund,
)
from services.orders.order.states import LIVE_STATUSES, SALE_STATUSES, attempt_after, can_become
from services.orders.payments.provider import ProviderCharge
from services.orders.refunds.plan import OUTSIDE, outside_refund_row, refund_row, tickets_left
from services.orders.tables import checkout_command, money_entry, payment_attempt, refund
from services.orders.tickets.tables import ticket
from services.orders.tickets.tickets import ticket_drafts
from shared.concurrency.group_commit import by_halves
from shared.contracts.events import Event
from shared.messaging.outbox import wake_relay
from shared.postgres.engine import DB_AWAY, AsyncEngine, DBAPIError, statement
from shared.runtime.clock import rfc3339

_UPDATE_ORDERS = statement(__package__, "update_orders")
Row = dict[str, Any]


class LeaseLost(Exception):
    """Another worker has the lease of this order now."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to change one order for `seconds`. With `is_first_call` the attempt became `unknown` together with the
    lease, and the provider was not called for it yet. `is_pending`: whether it was neither sold nor ended before.
    """

    reference: str
    owner: str
    seconds: float
    is_first_call: bool = False
    is_pending: bool = True


class Written(NamedTuple):
    """What the database set; times in ms since the epoch."""

    version: int
    confirmed_at_ms: int | None
    fulfilled_at_ms: int | None


class LeaseRelease(NamedTuple):
    """Gives the lease back. The order is due again in `due_in_s` (None: never), or at once if it was woken since it was
    read. `routine`: only to be compared with the provider again.
    """

    due_in_s: float | None
    errors: int = 0
    routine: bool = False


class OrderColumns(TypedDict, total=False):
    """What an update sets in the order's row: `confirmed`, `fulfilled`, `ended` and `released` are set to the present
    time. A new status (`to`) clears the review decision, and so does `clear_decision`; an empty `end_reason` clears it.
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


_TABLES = {
    "attempts": payment_attempt, "money": money_entry, "commands": checkout_command, "refunds_requested": refund,
    "refunds_done": refund, "tickets": ticket, "tickets_voided": ticket, "mails": mail,
}  # fmt: skip
# The columns of each part of an update: its rows are rows of a table.
PARTS = {part: frozenset(table.c.keys()) for part, table in _TABLES.items()}


@dataclass(slots=True)
class OrderUpdate:
    """All that one step changes about one order. Without `bumps_version` nothing visible changed, e.g. only the lease
    is released.
    """

    lease: Lease
    order: Order
    bumps_version: bool = True
    synced: bool = False
    release: LeaseRelease | None = None
    columns: OrderColumns = field(default_factory=OrderColumns)
    attempts: dict[int, Attempt] = field(default_factory=dict)
    charges: list[Charge] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    parts: dict[str, list[Row]] = field(default_factory=dict)

    def set_order(self, **columns: Unpack[OrderColumns]) -> Self:
        to = columns.get("to")
        assert to is None or can_become(self.order.status, to), f"{self.order.status} never becomes {to}"
        self.columns |= columns
        return self

    def set_attempt(self, attempt: Attempt, **changes: Any) -> Self:
        """A live attempt that fails also ends its checkout command."""
        self.attempts[attempt.n] = after = replace(attempt, **changes)
        if after.status == "failed" and attempt.status in LIVE_STATUSES:
            self.finish_command("checkout", error=after.reason or "failed")
        return self

    def record_charges(self, provider: str, charges: Sequence[ProviderCharge]) -> Self:
        """Applies the provider's answer: attempts only move forward, and money that moved is entered once, also what
        was refunded or withdrawn at the provider itself.
        """
        self.synced = True
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
        self._add_row("refunds_requested", **row)
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
        known = {charge.charge_ref for charge in self.order.charges}
        return replace(
            self.order, attempts=tuple(self.attempts.get(attempt.n, attempt) for attempt in self.order.attempts),
            charges=(*self.order.charges, *(charge for charge in self.charges if charge.charge_ref not in known)),
            sync_requested=False, sync_due=False,
        )  # fmt: skip

    @property
    def changes_payment(self) -> bool:
        """Whether attempts or charges of this update differ from those that were read, or the provider moved money."""
        after = self.expected_order()
        changed = (after.attempts, after.charges) != (self.order.attempts, self.order.charges)
        return changed or bool(self.parts or self.columns)

    def add_money_entry(self, kind: str, provider: str, **entry: Any) -> Self:
        """Adds a money entry. The provider's id makes it unique, so writing it again is harmless."""
        return self._add_row("money", kind=kind, provider=provider, **entry)

    def finish_command(
        self, kind: str, *, error: str | None = None, caused_by: str | None = None, command_id: str | None = None
    ) -> Self:
        """Ends the open commands of this kind, or only `command_id`. With `caused_by` a command is recorded even if
        none was open.
        """
        return self._add_row(
            "commands", command_type=kind, status="failed" if error else "completed", attempts=1, error_message=error,
            caused_by=caused_by, command_id=command_id,
        )  # fmt: skip

    def begin_command(self, kind: str, *, caused_by: str) -> Self:
        """Opens a command that a later step will end, unless one is open."""
        return self._add_row("commands", command_type=kind, status="processing", attempts=0, caused_by=caused_by)

    def record_failed_try(self, kind: str, *, error: str, caused_by: str | None) -> Self:
        """Counts a failed try of the open command; with `caused_by` one is opened if there is none."""
        return self._add_row(
            "commands", command_type=kind, status="processing", attempts=1, error_message=error, caused_by=caused_by
        )

    def request_refund(self, charge: Charge, *, reason: str, requested_by: str) -> Self:
        """Requests a refund of all that is left of this charge."""
        return self._add_row("refunds_requested", **refund_row(charge, reason=reason, requested_by=requested_by))

    def finish_refund(self, refund_id: int, *, status: str) -> Self:
        """`succeeded` or `refused`. Tickets of a refused refund stay with the customer."""
        return self._add_row("refunds_done", id=refund_id, status=status)

    def reduce_refund(self, refund: Refund, *, left_minor: int) -> Self:
        """Requests only what is left, under another key, as its amount is another; nothing left is done at once."""
        status, idem_key = "requested" if left_minor else "succeeded", f"{refund.idem_key}:{left_minor}"
        return self._add_row("refunds_done", id=refund.id, status=status, amount_minor=left_minor, idem_key=idem_key)

    def finish_return(self, refund_id: int, *, outcome: str) -> Self:
        """Stores what inventory answered about the tickets of this refund."""
        return self._add_row("refunds_done", id=refund_id, returned=outcome)

    def issue_tickets(self, *, status: str) -> Self:
        """Issues the order's tickets; writing it again issues none twice."""
        self.set_order(fulfilled=True).emit("fulfilled", status=status)
        for draft in ticket_drafts(self.order):
            self._add_row("tickets", **draft._asdict())
        return self

    def void_tickets(self, *, reason: str, line_no: int | None = None, beyond: int = 0) -> Self:
        """Voids the tickets of `line_no` (all lines if None) except the first `beyond` of each line."""
        return self._add_row("tickets_voided", void_reason=reason, line_no=line_no, n=beyond)

    def queue_mail(self, kind: str, *, about: str = "", **facts: Any) -> Self:
        """Queues a mail to the address that the order has by then; `about` distinguishes mails of one kind."""
        key = ":".join(filter(None, (kind, self.order.reference, about)))
        budget = None if self.order.total_minor else "own"
        return self._add_row("mails", mail_key=key, kind=kind, event_id=self.order.event_id, budget=budget, **facts)

    def emit(self, kind: str, *, status: str, **after: Any) -> Self:
        """Adds the event `order.<kind>` to the outbox, in the same transaction."""
        version = self.order.version + len(self.events) + 1
        self.events.append(order_event(self.order, kind, version=version, status=status, **after))
        return self

    def _add_row(self, part: str, **row: Any) -> Self:
        assert row.keys() <= PARTS[part], f"{part}: {row.keys() - PARTS[part]}"
        self.parts.setdefault(part, []).append({"reference": self.order.reference, **row})
        return self

    def rows(self) -> Iterator[tuple[str, Row]]:
        """The rows of this update, each with its parameter in `update_orders.sql`."""
        release, reference = self.release, self.order.reference
        yield "orders", {
            "reference": self.lease.reference, "lease": self.lease.owner, "lease_s": self.lease.seconds,
            "status": self.order.status, "wake_count": self.order.wake_count, "synced": self.synced,
            "event_count": max(1, len(self.events)) if self.bumps_version else 0, "releases": release is not None,
            **(release._asdict() if release else {}), **self.columns,
        }  # fmt: skip
        for event in self.events:
            yield "events", {"reference": reference, "body": event.model_dump(mode="json")}
        for attempt in self.attempts.values():
            yield "attempts", {
                "reference": reference, "n": attempt.n, "status": attempt.status, "reason": attempt.reason,
                "provider_ref": attempt.provider_ref, "checkout_url": attempt.checkout_url, "errors": attempt.errors,
            }  # fmt: skip
        for charge in self.charges:
            yield "money", {
                "reference": reference, "kind": "charge", "provider": charge.provider, "charge_ref": charge.charge_ref,
                "provider_ref": charge.charge_ref, "amount_minor": charge.amount_minor, "currency": charge.currency,
                "occurred_at": rfc3339(charge.occurred_at_ms),
            }  # fmt: skip
        for part, rows in self.parts.items():
            yield from ((part, row) for row in rows)


async def write(db: AsyncEngine, updates: Sequence[OrderUpdate]) -> list[BaseException | Written]:
    """Writes updates and returns one outcome for each: `Written`, `LeaseLost`, or the error of its statement.

    `db` commits each statement. Raises one of `DB_AWAY` if the database is unavailable; then the outcome is unknown.
    """
    try:
        if len({update.lease.reference for update in updates}) == len(updates):
            return await _write_batch(db, updates)
    except DB_AWAY:
        raise
    except DBAPIError as failed:
        if len(updates) == 1:
            return [failed]
    return await by_halves(partial(write, db), updates)


async def _write_batch(db: AsyncEngine, updates: Sequence[OrderUpdate]) -> list[BaseException | Written]:
    parts: dict[str, list[Row]] = {"orders": [], "events": [], **{part: [] for part in PARTS}}
    for update in updates:
        for part, row in update.rows():
            parts[part].append(row)
    bound: dict[str, Any] = {part: orjson.dumps(rows).decode() for part, rows in parts.items()}
    bound["references"] = [update.lease.reference for update in updates]
    async with db.connect() as connection:
        rows = (await connection.execute(_UPDATE_ORDERS, bound)).all()
    if parts["events"]:
        wake_relay("orders")
    written = {row.reference: Written(row.version, row.confirmed_at_ms, row.fulfilled_at_ms) for row in rows}
    return [written.get(update.lease.reference) or LeaseLost(update.lease.reference) for update in updates]


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
