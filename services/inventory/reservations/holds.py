"""What fans and operators do with a hold: read, extend once, release.

The database decides, then Redis follows; a hold that an order is paying for is never released here. A hold that ends by
its fan's wish, in whole or in part, here or through its order, takes a token of that fan: without one the fan must wait
before the next hold.
"""

import time
from collections.abc import Mapping, Sequence
from functools import partial

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory import tables
from services.inventory.layout.layout import Layout
from services.inventory.layout.selection import GaKey
from services.inventory.problems import AlreadyBought
from services.inventory.redis_stock.client import RedisStock, as_in_db
from services.inventory.reservations.expiry import cancel_holds
from services.inventory.reservations.partial_release import keep_only
from services.inventory.store.reservations import ReservationRow, keys_of, read_reservations
from shared.audit_log import Actor, of_event
from shared.contracts.inventory import Reservation
from shared.errors.problems import AlreadyExtended, HoldExpired, PaymentInProgress, UnknownReservation
from shared.postgres.engine import statement
from shared.process.clock_offsets import POSTGRES_NOW
from shared.runtime.clock import now_ms
from shared.security.limits import Buckets

RELEASE_MAX = 500
LIVE_RESERVATIONS = statement(__package__, "live_reservations")
EXTEND = statement(__package__, "extend")
UNPAID = text(
    "SELECT reservation_id FROM inventory.reservation WHERE event_id = :event_id AND status = 'pending_payment' "
    "LIMIT :count_max"
)


class Holds:
    """`autocommit_db` is the same pool without transactions, for single reads."""

    def __init__(
        self, db: AsyncEngine, autocommit_db: AsyncEngine, redis_stock: RedisStock, given_back: Buckets
    ) -> None:
        self._db, self._autocommit_db, self._redis_stock = db, autocommit_db, redis_stock
        self._given_back = given_back
        self._cancel = partial(cancel_holds, db, redis_stock)

    async def read(self, reservation_id: str, *, event_id: str | None = None) -> ReservationRow:
        """Without its event, which is the shard key, it is searched in all. Raises `UnknownReservation`."""
        found = await self._read([(event_id, reservation_id)])
        if reservation_id not in found:
            raise UnknownReservation
        return found[reservation_id]

    async def read_many(self, named: Sequence[tuple[str | None, str]]) -> list[Reservation | None]:
        """One per event and id, in order; None for an unknown one."""
        found = await self._read(named)
        return [found[r].to_contract() if r in found else None for _, r in named]

    async def live_of(self, event_id: str, holder: str) -> ReservationRow | None:
        """The holder's live reservation: of several the one that ends last."""
        async with self._autocommit_db.connect() as connection:
            values = {"event_id": event_id, "holders": [holder]}
            live = (await connection.execute(LIVE_RESERVATIONS, values)).all()
        if not live:
            return None
        latest = max(live, key=lambda row: row.until_ms).reservation_id
        return (await self._read([(event_id, latest)])).get(latest)

    async def _read(self, named: Sequence[tuple[str | None, str]]) -> dict[str, ReservationRow]:
        async with self._autocommit_db.connect() as connection:
            return await read_reservations(connection, await keys_of(connection, named))

    async def release(self, record: ReservationRow) -> bool:
        """Releases the holder's own hold; False if it had been cancelled before. Raises `PaymentInProgress`,
        `AlreadyBought` or `HoldExpired`.
        """
        if record.status == "pending_payment":
            key, ended = (record.event_id, record.holder), list[str]()
            taken_s = self._given_back.charge(key, now_s=time.monotonic())
            try:
                at_ms = await self._slowest_clock_ms()
                ended = await self._cancel(
                    record.event_id, [record.reservation_id], reason="cancelled", now_ms=at_ms, actor=record.holder
                )
            finally:
                if not ended:
                    self._given_back.give_back(key, now_s=time.monotonic(), taken_s=taken_s)
            if ended:
                return True
            record = await self.read(record.reservation_id, event_id=record.event_id)
        _require_cancelled(record)
        return False

    async def keep_only(
        self, record: ReservationRow, layout: Layout, seats: Sequence[str], *, ga: Mapping[GaKey, int]
    ) -> ReservationRow:
        """The holder's own hold, reduced to these places. Raises `NotHeld`, `PaymentInProgress`, `AlreadyBought`,
        `HoldExpired` or `PriceTypeRefused`, and then nothing was changed.
        """
        key, kept = (record.event_id, record.holder), record
        taken_s = self._given_back.charge(key, now_s=time.monotonic())
        try:
            kept = await keep_only(self._db, self._redis_stock, layout, record.reservation_id, seats, ga=ga)
        finally:
            if kept.released_tickets == record.released_tickets:
                self._given_back.give_back(key, now_s=time.monotonic(), taken_s=taken_s)
        return kept

    async def extend(self, record: ReservationRow) -> ReservationRow:
        """Gives an unpaid hold its first length again, from now on. Raises `AlreadyExtended`, or what
        ended the hold.
        """
        values = {
            "event_id": record.event_id, "reservation_id": record.reservation_id,
            "now_ms": await self._slowest_clock_ms(),
        }  # fmt: skip
        async with self._db.begin() as connection:
            extended = (await connection.execute(EXTEND, values)).one_or_none()
        if extended is None:
            record = await self.read(record.reservation_id, event_id=record.event_id)
            if record.status == "pending_payment" and record.extended:
                raise AlreadyExtended
            _require_cancelled(record)
            raise HoldExpired
        if extended.version == record.version + 1:
            record.version, record.reserved_until_ms = extended
        else:  # it has changed since it was read
            record = await self.read(record.reservation_id, event_id=record.event_id)
        await self._redis_stock.follow(record.event_id, [as_in_db(record)])
        return record

    async def release_one(self, reservation_id: str, *, actor: str, reason: str) -> ReservationRow:
        """The reservation after an operator released it. Raises `UnknownReservation` or `PaymentInProgress`."""
        record = await self.read(reservation_id)
        if record.status == "pending_payment":
            at_ms = self._process_clock_ms()
            if await self._cancel(record.event_id, [reservation_id], reason="operator", now_ms=at_ms, actor=actor):
                await self._record("release", record.event_id, actor, reason, reservation_id=reservation_id)
            record = await self.read(reservation_id, event_id=record.event_id)
        if record.is_live:
            raise PaymentInProgress("The reservation is being paid. Cancel its order first.")
        return record

    async def release_all(self, event_id: str, *, actor: str, reason: str) -> int:
        """Releases every hold of the event that is not being paid; how many. They are in the audit log also if it
        could not release the rest.
        """
        released = 0
        try:
            while True:
                async with self._autocommit_db.connect() as connection:
                    values = {"event_id": event_id, "count_max": RELEASE_MAX}
                    ids = list((await connection.execute(UNPAID, values)).scalars())
                at_ms = self._process_clock_ms()
                ended = await self._cancel(event_id, ids, reason="release-all", now_ms=at_ms, actor=actor)
                if not ended:
                    return released
                released += len(ended)
        finally:
            if released:
                await self._record("release-all", event_id, actor, reason, released=released)

    async def _record(self, action: str, event_id: str, actor: str, reason: str, **after: str | int) -> None:
        async with self._db.begin() as connection:
            by = Actor(actor, reason)
            await tables.audit_log.write(connection, action, by, subject=of_event(event_id), after=after)

    def _process_clock_ms(self) -> int:
        return now_ms() + self._redis_stock.clock_offset_ms

    async def _slowest_clock_ms(self) -> int:
        """The time by the slowest clock; PostgreSQL's is read now."""
        async with self._autocommit_db.connect() as connection:
            db_ms: int = (await connection.execute(POSTGRES_NOW)).scalar_one()
        return min(db_ms + self._redis_stock.clock_offset_ms, self._redis_stock.slowest_ms())


def _require_cancelled(record: ReservationRow) -> None:
    if record.status == "paying":
        raise PaymentInProgress("The reservation is being paid. Cancel the order instead.")
    if record.status == "confirmed":
        raise AlreadyBought
    if record.status == "expired":
        raise HoldExpired
