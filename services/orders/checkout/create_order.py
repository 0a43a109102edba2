"""Writes new orders: concurrent ones by one statement, each owned by this process from the beginning.

A duplicate answers for itself: key, reference and reservation are unique in the row, and what exists is not written.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import orjson

from services.orders.checkout.requests import NewOrder
from services.orders.model.order import Attempt, JournalEntry, LineTicket, Order, OrderLine
from services.orders.pricing.calculator import Quote
from services.orders.pricing.promo_codes import Redemption, RejectionReason, rejections
from services.orders.store.rows import attempts_json, journal_json, lines_json, provider_key
from services.orders.tickets.tickets import ticket_id
from services.orders.worker.worker import Worker
from shared.concurrency.group_commit import GroupCommit, by_halves
from shared.contracts.events import Event
from shared.contracts.fields import code_key, tidy
from shared.contracts.inventory import Reservation
from shared.errors.database import retry_deadlocks
from shared.messaging.outbox import wake_relay
from shared.postgres.engine import DB_AWAY, AsyncConnection, AsyncEngine, DBAPIError, statement
from shared.process.clock_offsets import Clocks
from shared.runtime import tracing
from shared.runtime.clock import now_ms

_INSERT = statement("services.orders.store", "insert")
BATCH_MAX = 100
WAITING_MAX = 2000
IN_FLIGHT_MAX = 2  # a batch that waits for a row lock does not hold up the next


class Outcome(NamedTuple):
    """What became of a draft: the order as it was written, or why its promo code was refused. With neither its key
    created an order before, its reference can never be used, or its reservation has another order.
    """

    order: Order | None = None
    rejected: RejectionReason | None = None


@dataclass(frozen=True, kw_only=True)
class OrderDraft:
    """An order to be written."""

    reference: str
    owner_id: str
    key_hash: bytes
    fingerprint: bytes
    reservation: Reservation
    quote: Quote
    customer_key: str
    request: NewOrder
    language: str
    capture: bool
    traceparent: str | None = field(default_factory=tracing.traceparent)

    @property
    def redemption(self) -> Redemption | None:
        """The redemption of its promo code, if it has one."""
        code = self.request.promo_code
        if code is None:
            return None
        return Redemption(self.reservation.event_id, code_key(code), self.customer_key)

    @cached_property
    def order(self) -> Order:
        """The order as it is written; the database gives it its version. Its attempt is `unknown`, as after a crash
        during the call: whoever takes it over repeats the charge under its key.
        """
        held, payment, at_ms = self.reservation, self.request.payment, now_ms()
        attempt = Attempt(
            n=1, provider=payment.provider, method=payment.method, token=payment.token, return_url=payment.return_url,
            amount_minor=self.quote.total_minor, currency=held.currency, provider_key=provider_key(self.reference, 1),
            status="unknown", capture=self.capture, created_at_ms=at_ms, changed_at_ms=at_ms,
        )  # fmt: skip
        payload = {"reservation_id": held.reservation_id}
        journal = (
            JournalEntry(type="reserve", by="fan", status="completed", tries=1, at_ms=at_ms, done_at_ms=at_ms,
                    payload=payload),
            JournalEntry(type="checkout", by="fan", status="processing", tries=0, at_ms=at_ms),
        )  # fmt: skip
        return Order(
            reference=self.reference, status="pending", event_id=held.event_id, reservation_id=held.reservation_id,
            owner_id=self.owner_id, lane=held.lane, join_seq=held.join_seq, total_minor=self.quote.total_minor,
            currency=held.currency, customer_name=tidy(self.request.customer.name),
            customer_email=self.request.customer.email, language=self.language, created_at_ms=at_ms,
            expires_at_ms=held.reserved_until_ms, grace_s=held.grace_s, confirmed_at_ms=None, ended_at_ms=None,
            end_reason=None, cancel_requested=False, extended=False, released=False, charge_ref=None, version=0,
            now_ms=at_ms, traceparent=self.traceparent, lines=tuple(map(self._line, range(len(self.quote.lines)))),
            extras=self.quote.extras, attempts=(attempt,) if self.quote.total_minor else (), journal=journal,
        )  # fmt: skip

    def _line(self, place: int) -> OrderLine:
        line, line_no = self.quote.lines[place], place + 1
        ids = (ticket_id(self.reference, line_no, n) for n in range(1, line.quantity + 1))
        return replace(line, line_no=line_no, tickets=tuple(LineTicket(id=one) for one in ids))


class OrderWriter:
    """Writes orders and gives them to the worker of this process."""

    def __init__(self, db: AsyncEngine, worker: Worker, clocks: Clocks) -> None:
        self._db, self._worker, self._clocks = db, worker, clocks
        self._single = db.execution_options(isolation_level="AUTOCOMMIT")
        self._group: GroupCommit[OrderDraft, Outcome] = GroupCommit(
            self._insert_batch, name="orders-insert", batch_max=BATCH_MAX, waiting_max=WAITING_MAX,
            in_flight_max=IN_FLIGHT_MAX,
        )  # fmt: skip
        self.insert = self._group.submit
        self.close = self._group.close

    async def _insert_batch(self, batch: Sequence[OrderDraft]) -> Sequence[Outcome | BaseException]:
        await self._worker.require_alive()
        try:
            return await retry_deadlocks(lambda: self._insert(batch))
        except DB_AWAY:
            self._worker.doubt()
            raise
        except DBAPIError as failed:
            if len(batch) > 1:
                return await by_halves(self._insert_batch, batch)
            return [failed]

    async def _insert(self, batch: Sequence[OrderDraft]) -> list[Outcome]:
        """Codes are locked, counted and redeemed in one transaction; without codes there is a single statement."""
        if not any(draft.redemption for draft in batch):
            async with self._single.connect() as connection:
                written = await self._write(connection, batch)
            return self._outcomes(batch, written, {})
        async with self._db.begin() as connection:
            redeeming = {draft.reference: draft.redemption for draft in batch if draft.redemption}
            found = await rejections(connection, list(redeeming.values()))
            rejected = {reference: why for reference, why in zip(redeeming, found, strict=True) if why}
            written = await self._write(connection, [draft for draft in batch if draft.reference not in rejected])
        return self._outcomes(batch, written, rejected)

    async def _write(self, connection: AsyncConnection, drafts: Sequence[OrderDraft]) -> dict[str, tuple[int, int]]:
        """The version of each order that is new, and when it was created, in ms since the epoch."""
        first = {draft.reference: draft for draft in reversed(drafts)}  # of each reference
        bound = {"orders": orjson.dumps(list(map(_row, first.values()))).decode(), "owner": self._worker.owner}
        rows = await connection.execute(_INSERT, bound)
        wake_relay("orders")
        return {row.reference: (row.version, row.created_at_ms) for row in rows}

    def _outcomes(
        self, batch: Sequence[OrderDraft], written: dict[str, tuple[int, int]], rejected: dict[str, RejectionReason]
    ) -> list[Outcome]:
        outcomes = []
        for draft in batch:
            if draft.reference not in written:
                outcomes.append(Outcome(rejected=rejected.get(draft.reference)))
                continue
            version, created_at_ms = written.pop(draft.reference)  # of two with the same reference the first
            now_ms = min(version, self._clocks.slowest_ms())
            order = replace(draft.order, version=version, created_at_ms=created_at_ms, now_ms=now_ms)
            self._worker.add(order)
            outcomes.append(Outcome(order))
        return outcomes


def _row(draft: OrderDraft) -> dict[str, Any]:
    order, redemption = draft.order, draft.redemption
    return {
        "reference": order.reference, "event_id": order.event_id, "reservation_id": order.reservation_id,
        "owner_id": order.owner_id, "key_hash": draft.key_hash.hex(), "fingerprint": draft.fingerprint.hex(),
        "lane": order.lane, "join_seq": order.join_seq, "total_minor": order.total_minor, "currency": order.currency,
        "customer_name": order.customer_name, "customer_email": order.customer_email,
        "customer_phone": draft.request.customer.phone, "language": order.language,
        "expires_at_ms": order.expires_at_ms, "grace_s": order.grace_s, "lines": lines_json(order.lines),
        "extras": list(order.extras), "attempts": attempts_json(order.attempts),
        "journal": journal_json(order.journal), "promo_code": redemption and redemption.code,
        "customer_key": draft.customer_key, "event": _created_event(order).model_dump(mode="json"),
        "traceparent": order.traceparent,
    }  # fmt: skip


def _created_event(order: Order) -> Event:
    return Event(
        type="order.created",
        event_id=order.event_id,
        actor=order.holder,
        aggregate=f"order:{order.reference}",
        after={
            "reference": order.reference, "event_id": order.event_id, "status": "pending", "holder": order.holder,
            "lane": order.lane, "join_seq": order.join_seq, "reservation_id": order.reservation_id,
            "total_minor": order.total_minor, "currency": order.currency,
        },
    )  # fmt: skip
