"""What one step writes about a leased order, as data; and the one statement that writes the changes of many orders.

A change is written whole or not at all: a worker that slept past its lease finds another's in the row, and nothing it
still wants to write is written. Orders that are changed together do not share a fate: if their statement fails, each is
tried by itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import orjson

from services.orders.order.next_step import MISMATCH, Attempt, Charge, Order
from services.orders.order.states import LIVE, attempt_after, may_become
from services.orders.payments.provider import ProviderCharge
from services.orders.refunds.plan import refund_row
from services.orders.tickets.tickets import ticket_drafts
from shared.contracts.events import Event
from shared.postgres.engine import DB_AWAY, AsyncEngine, DBAPIError, statement

_CHANGE = statement(__package__, "change")
Row = dict[str, Any]


class LeaseLost(Exception):
    """Another worker has this order now."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to change one order for a while. `is_first_call`: its attempt was written down as unknown when it was
    taken, and the provider has not been asked to charge it yet.
    """

    reference: str
    owner: str
    seconds: float
    is_first_call: bool = False


class Written(NamedTuple):
    """What the ledger made of a change; times in ms since the epoch."""

    version: int
    confirmed_at_ms: int | None
    fulfilled_at_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRelease:
    """The lease goes back. Whatever nudged the order since it was seen makes it due at once."""

    due_in_s: float | None
    errors: int = 0


@dataclass(slots=True)
class OrderUpdate:
    """Everything that follows from one step for one order. Without `is_news` only the lease goes back."""

    lease: Lease
    seen: Order
    bumps_version: bool = True
    synced: bool = False
    rest: LeaseRelease | None = None
    columns: Row = field(default_factory=dict)
    inserts: dict[str, list[Row]] = field(default_factory=dict)

    def order(self, *, to: str | None = None, **sets: Any) -> "OrderUpdate":
        """Sets `end_reason` and `charge_ref` to a value; `confirmed`, `fulfilled`, `ended`, `released` mean now. A new
        status ends what was decided about a review, and so does `undecided`.
        """
        if to is not None:
            assert may_become(self.seen.status, to), f"{self.seen.status} never becomes {to}"
            self.columns["status"] = to
        self.columns |= sets
        return self

    def attempt(self, attempt: Attempt, **sets: Any) -> "OrderUpdate":
        """With an attempt that fails ends its checkout command."""
        if sets.get("status") == "failed" and attempt.status in LIVE:
            self.command("checkout", error=sets.get("reason") or "failed")
        return self._part("attempts", n=attempt.n, sets=sets)

    def charges(self, provider: str, charges: Sequence[ProviderCharge]) -> "OrderUpdate":
        """What the provider says of its charges, forward only: attempts move on, money that moved is entered once."""
        self.synced = True
        status = {attempt.provider_key: attempt.status for attempt in self.seen.attempts}
        told: dict[str, ProviderCharge] = {}
        for charge in charges:
            if charge.reference != self.seen.reference:
                continue
            if charge.key in status:
                status[charge.key] = attempt_after(status[charge.key], charge.status)
                told[charge.key] = charge
            if charge.status == "succeeded":
                self.money(
                    "charge", provider, amount_minor=charge.amount_minor, currency=charge.currency,
                    charge_ref=charge.charge_ref, provider_ref=charge.charge_ref, occurred_at_ms=charge.occurred_at_ms,
                )  # fmt: skip
        for attempt in self.seen.attempts:
            if last := told.get(attempt.provider_key):
                self.attempt(
                    attempt, status=status[attempt.provider_key], provider_ref=last.charge_ref,
                    checkout_url=last.checkout_url, **_told_of(attempt, last),
                )  # fmt: skip
        return self

    def after(self) -> Order:
        """The order as the provider's answers leave it, before they are written: its attempts and its charges."""
        attempts = {attempt.n: attempt for attempt in self.seen.attempts}
        for row in self.inserts.get("attempts", ()):
            attempts[row["n"]] = replace(attempts[row["n"]], **row["sets"])
        known = {charge.charge_ref for charge in self.seen.charges}
        charges = [_charge(row) for row in self.inserts.get("money", ()) if row["charge_ref"] not in known]
        return replace(
            self.seen, attempts=tuple(attempts.values()), charges=(*self.seen.charges, *charges), sync_requested=False,
            look_due=False,
        )  # fmt: skip

    def money(self, kind: str, provider: str, **entry: Any) -> "OrderUpdate":
        """One entry for each id the provider gives, however often we hear of it."""
        return self._part("money", kind=kind, provider=provider, **entry)

    def command(
        self, kind: str, *, error: str | None = None, caused_by: str | None = None, command_id: str | None = None
    ) -> "OrderUpdate":
        """Ends the open commands of this kind, or this one of them; with `caused_by`, what nobody had asked for is
        recorded as well.
        """
        row = {"error": error, "caused_by": caused_by, "command_id": command_id, "closes": True, "attempts": 1}
        return self._part("commands", kind=kind, **row)

    def begin_command(self, kind: str, *, caused_by: str) -> "OrderUpdate":
        """Opens a command that a later step will end, unless one is open."""
        return self._part("commands", kind=kind, error=None, caused_by=caused_by, closes=False, attempts=0)

    def try_command(self, kind: str, *, error: str, caused_by: str | None) -> "OrderUpdate":
        """One more attempt that came to nothing: the command stays open, or is opened if something caused it."""
        return self._part("commands", kind=kind, error=error, caused_by=caused_by, closes=False, attempts=1)

    def ask_refund(self, charge: Charge, *, reason: str, asked_by: str) -> "OrderUpdate":
        return self._part("refunds_asked", **refund_row(charge, reason=reason, asked_by=asked_by))

    def finish_refund(self, refund_id: int, *, status: str) -> "OrderUpdate":
        """Tickets of a refund that was refused stay with their buyer."""
        return self._part("refunds_done", id=refund_id, status=status)

    def finish_return(self, refund_id: int, *, word: str) -> "OrderUpdate":
        """Inventory has answered for the tickets of this refund."""
        return self._part("refunds_done", id=refund_id, returned=word)

    def issue(self, *, status: str) -> "OrderUpdate":
        """The tickets of the order, each once however often it is written."""
        self.order(fulfilled=True).emit("fulfilled", status=status)
        for admission in ticket_drafts(self.seen):
            self._part("tickets", **admission._asdict())
        return self

    def void_tickets(self, *, reason: str, line_no: int | None = None, beyond: int = 0) -> "OrderUpdate":
        """Tickets admit nobody any more: those of this line, or of all, but the first so many."""
        return self._part("tickets_voided", reason=reason, line_no=line_no, beyond=beyond)

    def mail(self, kind: str, *, about: str = "", **facts: Any) -> "OrderUpdate":
        """A mail to the customer is owed; `about` tells two of a kind apart."""
        key = ":".join(filter(None, (kind, self.seen.reference, about)))
        address, event_id = self.seen.customer_email, self.seen.event_id
        return self._part("mails", mail_key=key, kind=kind, address=address, event_id=event_id, **facts)

    def emit(self, kind: str, *, status: str, **after: Any) -> "OrderUpdate":
        """Tells the suite what became of the order, in the transaction that made it so."""
        event = order_event(self.seen, kind, version=self.seen.version + self.news + 1, status=status, **after)
        return self._part("events", event_id=event.event_id, body=event.model_dump(mode="json"))

    @property
    def news(self) -> int:
        """How many events there are of it: each has a version of its own."""
        return len(self.inserts.get("events", ()))

    def _part(self, name: str, **row: Any) -> "OrderUpdate":
        self.inserts.setdefault(name, []).append({"reference": self.seen.reference, **row})
        return self

    def row(self) -> Row:
        rest, news = self.rest, max(1, self.news) if self.bumps_version else 0
        return {
            "reference": self.lease.reference, "lease": self.lease.owner, "lease_s": self.lease.seconds,
            "status": self.seen.status, "wake_count": self.seen.wake_count, "news": news, "looked": self.synced,
            "sets": self.columns, "rests": rest is not None, "due_in_s": rest.due_in_s if rest else None,
            "errors": rest.errors if rest else None,
        }  # fmt: skip


PARTS = (
    "attempts", "money", "commands", "refunds_asked", "refunds_done", "events", "tickets", "tickets_voided", "mails"
)  # fmt: skip


async def write(db: AsyncEngine, changes: Sequence[OrderUpdate]) -> list[BaseException | Written]:
    """One outcome per change: what was written, or `LeaseLost`, or what its statement failed with.

    `engine` commits each one. Raises when the ledger is away; then nobody knows what was written.
    """
    try:
        if len({change.lease.reference for change in changes}) == len(changes):
            return await _together(db, changes)
    except DB_AWAY:
        raise
    except DBAPIError as failed:
        if len(changes) == 1:
            return [failed]
    return [(await write(db, [change]))[0] for change in changes]


async def _together(db: AsyncEngine, changes: Sequence[OrderUpdate]) -> list[BaseException | Written]:
    bound: dict[str, Any] = {"orders": _json([change.row() for change in changes])}
    bound["references"] = [change.lease.reference for change in changes]
    for part in PARTS:
        bound[part] = _json([row for change in changes for row in change.inserts.get(part, ())])
    async with db.connect() as connection:
        rows = (await connection.execute(_CHANGE, bound)).all()
    written = {row.reference: Written(row.version, row.confirmed_at_ms, row.fulfilled_at_ms) for row in rows}
    return [written.get(change.lease.reference) or LeaseLost(change.lease.reference) for change in changes]


def _charge(row: Row) -> Charge:
    return Charge(
        provider=row["provider"], charge_ref=row["charge_ref"], amount_minor=row["amount_minor"],
        currency=row["currency"], occurred_at_ms=row["occurred_at_ms"], refunded_minor=0,
    )  # fmt: skip


def _json(rows: Sequence[Mapping[str, Any]]) -> str:
    return orjson.dumps(rows).decode()


def _told_of(attempt: Attempt, charge: ProviderCharge) -> Row:
    """Why it failed. An authorisation begins to count errors anew, and one of another amount is no promise to us."""
    if charge.status != "authorised":
        return {"reason": charge.reason}
    is_ours = (charge.amount_minor, charge.currency) == (attempt.amount_minor, attempt.currency)
    return {"reason": None if is_ours else MISMATCH} | ({} if attempt.status == "authorised" else {"errors": 0})


def order_event(seen: Order, kind: str, *, version: int, status: str, **after: Any) -> Event:
    """`order.<kind>` with what consumers need to act without asking."""
    _, _, holder = seen.principal.partition(":")
    return Event(
        type=f"order.{kind}",
        event_id=seen.event_id,
        aggregate=f"order:{seen.reference}",
        version=version,
        before={"status": seen.status},
        after={
            "reference": seen.reference, "event_id": seen.event_id, "status": status, "holder": holder,
            "lane": seen.lane, "join_seq": seen.join_seq, "reservation_id": seen.reservation_id,
            "total_minor": seen.total_minor, "currency": seen.currency, **after,
        },
    )  # fmt: skip
