"""The transaction that makes orders, and the tombstone that keeps one from ever being made.

Orders that are placed at the same moment share a transaction; if one of them cannot be, each is tried by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson
from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert

from services.orders.jobs import JobNotAccepted, Jobs
from services.orders.schemas import NewOrder
from services.orders.tables import order
from shared.contracts.events import Event
from shared.contracts.inventory import Reservation
from shared.group_commit import GroupCommit
from shared.postgres import LEDGER_AWAY, AsyncConnection, AsyncEngine, DBAPIError, statement

_PLACE = statement(__package__, "place")
BATCH_MAX = 100
WAITING_MAX = 2000
IN_FLIGHT_MAX = 2  # one that waits for another's row does not hold up the next
Outcome = Literal["placed", "unheard", "known", "buried"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Everything an order is made of."""

    reference: str
    principal: str
    scope: str
    key_hash: bytes
    fingerprint: bytes
    reservation: Reservation
    asked: NewOrder


class _Lost(Exception):
    """Some order must not be; the transaction is given up."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome)
        self.outcome: Outcome = outcome


class Placing:
    """Makes orders and asks for a worker. `unheard`: made, but the job engine took no job; `known`: the key was used;
    `buried`: this reference can never be.
    """

    def __init__(self, engine: AsyncEngine, jobs: Jobs, *, capture: bool) -> None:
        self._engine, self._jobs, self._capture = engine, jobs, capture
        self._group: GroupCommit[Placed, Outcome] = GroupCommit(
            self._place, name="orders-place", batch_max=BATCH_MAX, waiting_max=WAITING_MAX, in_flight_max=IN_FLIGHT_MAX
        )
        self.close = self._group.close

    async def place(self, new: Placed) -> Outcome:
        return await self._group.submit(new)

    async def _place(self, batch: list[Placed]) -> Sequence[Outcome | BaseException]:
        try:
            outcome = await self._heard(batch)
        except LEDGER_AWAY:
            raise
        except (_Lost, DBAPIError) as failed:
            if len(batch) > 1:
                return [(await self._place([new]))[0] for new in batch]
            return [failed.outcome if isinstance(failed, _Lost) else failed]
        return [outcome] * len(batch)

    async def _heard(self, batch: Sequence[Placed]) -> Outcome:
        try:
            await self._write(batch, self._jobs)
        except JobNotAccepted:
            await self._write(batch, None)
            return "unheard"
        return "placed"

    async def _write(self, batch: Sequence[Placed], jobs: Jobs | None) -> None:
        """All of them or none. One wake-up call is enough for all: it names nobody, rows say what is due."""
        if len({new.reference for new in batch}) < len(batch):
            raise _Lost("known")
        async with self._engine.begin() as connection:
            asked = orjson.dumps([_row(new) | {"capture": self._capture} for new in batch]).decode()
            rows = (await connection.execute(_PLACE, {"orders": asked})).all()
            if not all(row.keyed for row in rows):
                raise _Lost("known")
            if not all(row.placed for row in rows):
                raise _Lost("buried")
            if jobs is not None:
                await jobs.wake_up(connection, batch[0].reference)


def _row(new: Placed) -> dict[str, Any]:
    held, asked = new.reservation, new.asked
    return {
        "scope": new.scope, "key_hash": new.key_hash.hex(), "fingerprint": new.fingerprint.hex(),
        "reference": new.reference, "event_id": held.event_id, "reservation_id": held.reservation_id,
        "principal": new.principal, "lane": held.lane, "join_seq": held.join_seq, "total_minor": held.total_minor,
        "currency": held.currency, "customer_name": asked.customer.name, "customer_email": asked.customer.email,
        "customer_phone": asked.customer.phone, "expires_at_ms": held.reserved_until_ms, "grace_s": held.grace_s,
        "lines": [line.model_dump() for line in held.lines], "provider": asked.payment.provider,
        "method": asked.payment.method, "token": asked.payment.token, "return_url": asked.payment.return_url,
        "event": _created(new).model_dump(mode="json"),
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
            "total_minor": held.total_minor, "currency": held.currency,
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
