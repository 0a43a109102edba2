"""The transaction that makes orders, and the tombstone that keeps one from ever being made.

Orders that are placed at the same moment share a transaction; if one of them cannot be, each is tried by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import orjson
from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert

from services.orders.api.schemas import NewOrder
from services.orders.order.updates import Lease
from services.orders.order.view import adjustment_view, line_view
from services.orders.pricing.calculator import Quote
from services.orders.pricing.promo_codes import Redemption, Refusal, normalize_code, over_limit
from services.orders.processing.job_queue import EnqueueFailed, JobQueue
from services.orders.processing.worker_pool import InlineProcessor
from services.orders.tables import order
from shared.contracts.events import Event
from shared.contracts.inventory import Reservation
from shared.postgres.engine import DB_AWAY, AsyncConnection, AsyncEngine, DBAPIError, statement
from shared.postgres.errors import outlive_deadlocks
from shared.runtime.group_commit import GroupCommit

_PLACE = statement(__package__, "place")
BATCH_MAX = 100
WAITING_MAX = 2000
IN_FLIGHT_MAX = 2  # one that waits for another's row does not hold up the next
Word = Literal["placed", "unheard", "known", "buried"] | Refusal


class Outcome(NamedTuple):
    """`unheard`: made, but the job engine took no job; `known`: the key was used; `buried`: this reference can never
    be; a `HoldDenied`: others took the last use of the promo code. With a lease the order is made, and the request's to
    settle.
    """

    word: Word
    lease: Lease | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderDraft:
    """Everything an order is made of. With a lease no worker touches it until that has run out."""

    reference: str
    principal: str
    scope: str
    key_hash: bytes
    fingerprint: bytes
    reservation: Reservation
    quote: Quote
    customer_key: str
    asked: NewOrder
    lease: Lease | None = None

    @property
    def use(self) -> Redemption | None:
        """Of a promo code."""
        code = self.asked.promo_code
        if code is None:
            return None
        return Redemption(self.reservation.event_id, normalize_code(code), self.customer_key)


class _BatchRejected(Exception):
    """Some order must not be; the transaction is given up."""

    def __init__(self, word: Word) -> None:
        super().__init__(word)
        self.word: Word = word


class OrderWriter:
    """Makes orders, and asks for a worker for those that no request settles itself."""

    def __init__(self, db: AsyncEngine, jobs: JobQueue, inline: InlineProcessor, *, capture: bool) -> None:
        self._db, self._jobs, self._inline, self._capture = db, jobs, inline, capture
        self._group: GroupCommit[OrderDraft, Outcome] = GroupCommit(
            self._place, name="orders-place", batch_max=BATCH_MAX, waiting_max=WAITING_MAX, in_flight_max=IN_FLIGHT_MAX
        )
        self.close = self._group.close

    async def insert(self, new: OrderDraft, *, in_request: bool) -> Outcome:
        """`in_request`: with a lease if there is a slot for it."""
        slot = self._inline.acquire(new.reference) if in_request else None
        outcome = None
        try:
            outcome = await self._group.submit(replace(new, lease=slot) if slot else new)
        finally:
            if slot and (outcome is None or outcome.lease is None):
                self._inline.release(slot)
        return outcome

    async def _place(self, batch: list[OrderDraft]) -> Sequence[Outcome | BaseException]:
        try:
            return await self._heard(batch)
        except DB_AWAY:
            raise
        except (_BatchRejected, DBAPIError) as failed:
            if len(batch) > 1:
                return [(await self._place([new]))[0] for new in batch]
            return [Outcome(failed.word) if isinstance(failed, _BatchRejected) else failed]

    async def _heard(self, batch: Sequence[OrderDraft]) -> list[Outcome]:
        try:
            await outlive_deadlocks(lambda: self._write(batch, self._jobs))
        except EnqueueFailed:
            return await self._unheard(batch)
        return [Outcome("placed", new.lease) for new in batch]

    async def _unheard(self, batch: Sequence[OrderDraft]) -> list[Outcome]:
        """Without a job: whatever finds a slot is settled by its request, the sweep finds the rest."""
        leases = [new.lease or self._inline.acquire(new.reference) for new in batch]
        try:
            await self._write([replace(new, lease=lease) for new, lease in zip(batch, leases, strict=True)], None)
        except BaseException:
            for new, lease in zip(batch, leases, strict=True):
                self._inline.release(None if new.lease else lease)
            raise
        return [Outcome("unheard", lease) for lease in leases]

    async def _write(self, batch: Sequence[OrderDraft], jobs: JobQueue | None) -> None:
        """All of them or none. One wake-up call is enough for all: it names nobody, rows say what is due."""
        if len({new.reference for new in batch}) < len(batch):
            raise _BatchRejected("known")
        uses = [new.use for new in batch if new.use]
        async with self._db.begin() as connection:
            if uses and (refused := await over_limit(connection, uses)):
                raise _BatchRejected(refused)
            asked = orjson.dumps([_row(new) | {"capture": self._capture} for new in batch]).decode()
            rows = (await connection.execute(_PLACE, {"orders": asked})).all()
            if not all(row.keyed for row in rows):
                raise _BatchRejected("known")
            if not all(row.placed for row in rows):
                raise _BatchRejected("buried")
            if jobs is not None and any(new.lease is None for new in batch):
                await jobs.enqueue(connection, batch[0].reference)


def _row(new: OrderDraft) -> dict[str, Any]:
    held, asked = new.reservation, new.asked
    return {
        "scope": new.scope, "key_hash": new.key_hash.hex(), "fingerprint": new.fingerprint.hex(),
        "reference": new.reference, "event_id": held.event_id, "reservation_id": held.reservation_id,
        "principal": new.principal, "lane": held.lane, "join_seq": held.join_seq, "total_minor": new.quote.total_minor,
        "currency": held.currency, "customer_name": asked.customer.name, "customer_email": asked.customer.email,
        "customer_phone": asked.customer.phone, "expires_at_ms": held.reserved_until_ms, "grace_s": held.grace_s,
        "lines": list(map(line_view, new.quote.lines)), "extras": list(map(adjustment_view, new.quote.extras)),
        "promo_code": new.use and new.use.code, "customer_key": new.customer_key, "provider": asked.payment.provider,
        "method": asked.payment.method, "token": asked.payment.token, "return_url": asked.payment.return_url,
        "event": _created(new).model_dump(mode="json"), "lease": new.lease.owner if new.lease else None,
        "lease_s": new.lease.seconds if new.lease else None,
    }  # fmt: skip


def _created(new: OrderDraft) -> Event:
    held = new.reservation
    return Event(
        type="order.created",
        event_id=held.event_id,
        actor=held.holder,
        aggregate=f"order:{new.reference}",
        after={
            "reference": new.reference, "event_id": held.event_id, "status": "pending", "holder": held.holder,
            "lane": held.lane, "join_seq": held.join_seq, "reservation_id": held.reservation_id,
            "total_minor": new.quote.total_minor, "currency": held.currency,
        },
    )  # fmt: skip


async def write_tombstone(db: AsyncEngine, reference: str) -> bool:
    """Sees to it that no order can ever be made under this reference. False if one has been."""
    async with db.begin() as connection:
        return await write_tombstone_in(connection, reference)


async def write_tombstone_in(connection: AsyncConnection, reference: str) -> bool:
    """As `bury`, in the caller's transaction. Waits for a transaction that is just making the order."""
    await connection.execute(insert(order).values(reference=reference, status="tombstone").on_conflict_do_nothing())
    status = await connection.scalar(select(order.c.status).where(order.c.reference == reference))
    return status == "tombstone"
