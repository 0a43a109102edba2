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
from services.orders.order.view import extra_body, line_body
from services.orders.pricing.calculator import Quote
from services.orders.pricing.promo_codes import Refusal, Use, over_limit, spelled
from services.orders.processing.job_queue import JobNotAccepted, Jobs
from services.orders.processing.worker_pool import Inline
from services.orders.tables import order
from shared.contracts.events import Event
from shared.contracts.inventory import Reservation
from shared.postgres.engine import LEDGER_AWAY, AsyncConnection, AsyncEngine, DBAPIError, statement
from shared.postgres.errors import outlive_deadlocks
from shared.runtime.group_commit import GroupCommit

_PLACE = statement(__package__, "place")
BATCH_MAX = 100
WAITING_MAX = 2000
IN_FLIGHT_MAX = 2  # one that waits for another's row does not hold up the next
Word = Literal["placed", "unheard", "known", "buried"] | Refusal


class Outcome(NamedTuple):
    """`unheard`: made, but the job engine took no job; `known`: the key was used; `buried`: this reference can never
    be; a `Refusal`: others took the last use of the promo code. With a lease the order is made, and the request's to
    settle.
    """

    word: Word
    lease: Lease | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
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
    def use(self) -> Use | None:
        """Of a promo code."""
        code = self.asked.promo_code
        if code is None:
            return None
        return Use(self.reservation.event_id, spelled(code), self.customer_key)


class _Lost(Exception):
    """Some order must not be; the transaction is given up."""

    def __init__(self, word: Word) -> None:
        super().__init__(word)
        self.word: Word = word


class Placing:
    """Makes orders, and asks for a worker for those that no request settles itself."""

    def __init__(self, engine: AsyncEngine, jobs: Jobs, inline: Inline, *, capture: bool) -> None:
        self._engine, self._jobs, self._inline, self._capture = engine, jobs, inline, capture
        self._group: GroupCommit[Placed, Outcome] = GroupCommit(
            self._place, name="orders-place", batch_max=BATCH_MAX, waiting_max=WAITING_MAX, in_flight_max=IN_FLIGHT_MAX
        )
        self.close = self._group.close

    async def place(self, new: Placed, *, in_request: bool) -> Outcome:
        """`in_request`: with a lease if there is a slot for it."""
        slot = self._inline.claim(new.reference) if in_request else None
        outcome = None
        try:
            outcome = await self._group.submit(replace(new, lease=slot) if slot else new)
        finally:
            if slot and (outcome is None or outcome.lease is None):
                self._inline.drop(slot)
        return outcome

    async def _place(self, batch: list[Placed]) -> Sequence[Outcome | BaseException]:
        try:
            return await self._heard(batch)
        except LEDGER_AWAY:
            raise
        except (_Lost, DBAPIError) as failed:
            if len(batch) > 1:
                return [(await self._place([new]))[0] for new in batch]
            return [Outcome(failed.word) if isinstance(failed, _Lost) else failed]

    async def _heard(self, batch: Sequence[Placed]) -> list[Outcome]:
        try:
            await outlive_deadlocks(lambda: self._write(batch, self._jobs))
        except JobNotAccepted:
            return await self._unheard(batch)
        return [Outcome("placed", new.lease) for new in batch]

    async def _unheard(self, batch: Sequence[Placed]) -> list[Outcome]:
        """Without a job: whatever finds a slot is settled by its request, the sweep finds the rest."""
        leases = [new.lease or self._inline.claim(new.reference) for new in batch]
        try:
            await self._write([replace(new, lease=lease) for new, lease in zip(batch, leases, strict=True)], None)
        except BaseException:
            for new, lease in zip(batch, leases, strict=True):
                self._inline.drop(None if new.lease else lease)
            raise
        return [Outcome("unheard", lease) for lease in leases]

    async def _write(self, batch: Sequence[Placed], jobs: Jobs | None) -> None:
        """All of them or none. One wake-up call is enough for all: it names nobody, rows say what is due."""
        if len({new.reference for new in batch}) < len(batch):
            raise _Lost("known")
        uses = [new.use for new in batch if new.use]
        async with self._engine.begin() as connection:
            if uses and (refused := await over_limit(connection, uses)):
                raise _Lost(refused)
            asked = orjson.dumps([_row(new) | {"capture": self._capture} for new in batch]).decode()
            rows = (await connection.execute(_PLACE, {"orders": asked})).all()
            if not all(row.keyed for row in rows):
                raise _Lost("known")
            if not all(row.placed for row in rows):
                raise _Lost("buried")
            if jobs is not None and any(new.lease is None for new in batch):
                await jobs.wake_up(connection, batch[0].reference)


def _row(new: Placed) -> dict[str, Any]:
    held, asked = new.reservation, new.asked
    return {
        "scope": new.scope, "key_hash": new.key_hash.hex(), "fingerprint": new.fingerprint.hex(),
        "reference": new.reference, "event_id": held.event_id, "reservation_id": held.reservation_id,
        "principal": new.principal, "lane": held.lane, "join_seq": held.join_seq, "total_minor": new.quote.total_minor,
        "currency": held.currency, "customer_name": asked.customer.name, "customer_email": asked.customer.email,
        "customer_phone": asked.customer.phone, "expires_at_ms": held.reserved_until_ms, "grace_s": held.grace_s,
        "lines": list(map(line_body, new.quote.lines)), "extras": list(map(extra_body, new.quote.extras)),
        "promo_code": new.use and new.use.code, "customer_key": new.customer_key, "provider": asked.payment.provider,
        "method": asked.payment.method, "token": asked.payment.token, "return_url": asked.payment.return_url,
        "event": _created(new).model_dump(mode="json"), "lease": new.lease.owner if new.lease else None,
        "lease_s": new.lease.seconds if new.lease else None,
    }  # fmt: skip


def _created(new: Placed) -> Event:
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


async def bury(engine: AsyncEngine, reference: str) -> bool:
    """Sees to it that no order can ever be made under this reference. False if one has been."""
    async with engine.begin() as connection:
        return await bury_in(connection, reference)


async def bury_in(connection: AsyncConnection, reference: str) -> bool:
    """As `bury`, in the caller's transaction. Waits for a transaction that is just making the order."""
    await connection.execute(insert(order).values(reference=reference, status="tombstone").on_conflict_do_nothing())
    status = await connection.scalar(select(order.c.status).where(order.c.reference == reference))
    return status == "tombstone"
