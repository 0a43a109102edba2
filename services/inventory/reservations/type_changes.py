"""Changes of the price types of a live hold: a child instead of an adult on the same seat.

How many there are of a type is stock, so it is decided as a hold is: by the same script, then by PostgreSQL under its
locks. The places and the deadline stay. If PostgreSQL refuses it, Redis has the hold again as it was.
"""

from typing import Any

import orjson
from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.layout.layout import Layout
from services.inventory.layout.selection import Selection, StockSelection
from services.inventory.problems import NotSameTickets
from services.inventory.redis_stock.client import HoldDenied, HoldGranted, RedisStock, as_in_db
from services.inventory.reservations.expiry import resolve_due
from services.inventory.reservations.partial_release import require_unpaid
from services.inventory.reservations.reserve import sold_out
from services.inventory.store.reservations import (
    BEGIN_FENCED,
    ReservationEvent,
    ReservationRow,
    by_column,
    event_body,
    read_reservations,
)
from shared.concurrency.background import wake
from shared.contracts.event_parts.price_types import quota_id
from shared.errors.problems import ClocksApart, HoldExpired, Unavailable
from shared.postgres.engine import fenced, raw_statement
from shared.redis.client import REDIS_AWAY
from shared.runtime.clock import REDIS, describe_offset

WRITE_TYPES = raw_statement(__package__, "write_types")
TRIES_MAX = 3
AGAIN = "The reservation has changed meanwhile. Nothing was changed. Try again."


class TypeChanges:
    """Changes price types of holds."""

    def __init__(self, db: AsyncEngine, redis_stock: RedisStock) -> None:
        self._db, self._redis_stock = db, redis_stock

    async def change(self, record: ReservationRow, layout: Layout, wanted: Selection) -> ReservationRow:
        """The holder's own hold at these price types. Raises `NotSameTickets`, `SoldOut` if there are not enough of a
        type, `PaymentInProgress`, `AlreadyBought`, `HoldExpired` or `Unavailable`, and then nothing was changed.
        """
        for _ in range(TRIES_MAX):
            require_unpaid(record, self._redis_stock.slowest_ms())
            if _places(record.selection) != _places(wanted):
                raise NotSameTickets("Name the price types of all tickets of this reservation, and of no others.")
            if record.selection == wanted:
                return record
            try:
                await self._change_in_redis(record, layout, wanted)
            except REDIS_AWAY as away:
                raise Unavailable from away
            written = await self._write(record, wanted)
            record = await self._read(record)
            with self._redis_stock.follows([record.event_id]):
                await self._redis_stock.follow(record.event_id, [as_in_db(record)])
            if written == "written":
                return record
            if written == "refused":
                more = _difference(record.selection, wanted)
                raise sold_out(layout, {quota: 0 for quota, n in more.items() if n > 0})
        raise Unavailable(AGAIN)

    async def _change_in_redis(self, record: ReservationRow, layout: Layout, wanted: Selection) -> None:
        request = {"reservation_id": record.reservation_id, "holder": record.holder, "change": wanted.text()}
        reply: HoldGranted | HoldDenied = HoldDenied("not-ready")
        for _ in range(2):
            (reply,) = await self._redis_stock.hold(record.event_id, [request])
            if isinstance(reply, HoldGranted) or not reply.due:
                break
            due, now_ms = sorted(reply.due), reply.now_ms
            await resolve_due(self._db, self._redis_stock, record.event_id, due, now_ms=now_ms)
        if isinstance(reply, HoldGranted):
            return
        if reply.outcome == "sold-out":
            raise sold_out(layout, StockSelection.parse(reply.detail).ga)
        if reply.outcome == "clocks-apart":
            raise ClocksApart(describe_offset(REDIS, int(reply.detail)))
        if reply.outcome == "gone":
            require_unpaid(await self._read(record), self._redis_stock.slowest_ms())
        raise Unavailable("The stock is being rebuilt. Nothing was changed. Try again shortly.")

    async def _read(self, record: ReservationRow) -> ReservationRow:
        async with self._db.connect() as connection:
            found = await read_reservations(connection, [(record.event_id, record.reservation_id)])
        if record.reservation_id not in found:
            raise HoldExpired
        return found[record.reservation_id]

    async def _write(self, record: ReservationRow, wanted: Selection) -> str:
        """`written`, `refused` by the numbers in all, or `stale`: it has changed since it was read."""
        event_id, more = record.event_id, _difference(record.selection, wanted)
        after = {"status": record.status, "total_minor": wanted.total_minor, **wanted.shown(), "types": wanted.types}
        changed = ReservationEvent("repriced", record.reservation_id, record.version + 1, after)
        body = orjson.dumps(event_body(event_id, "repriced", [changed], actor=record.holder)).decode()
        seats = [(s.section_id, s.position, s.unit_price_minor, s.type_id) for s in wanted.seats]
        arguments: list[Any] = [event_id, record.reservation_id, record.version, wanted.total_minor]
        arguments += [*by_column(list(more.items()), 2), *by_column(seats, 4), *by_column(list(wanted.ga), 4), body]
        outcome = "stale"
        try:
            async with fenced(self._db, BEGIN_FENCED.format(event_id=event_id)) as driver:
                row = await driver.fetchrow(WRITE_TYPES, *arguments, self._redis_stock.slowest_ms())
                if row["reservations"] != 1:
                    raise _Refused("stale")
                if (row["types"], row["seats"]) != (len(more), len(seats)):
                    raise _Refused("refused")
            outcome = "written"
            wake("inventory")
        except _Refused as refused:
            outcome = refused.outcome
        return outcome


class _Refused(Exception):
    """Rolls back what was not written as a whole."""

    def __init__(self, outcome: str) -> None:
        super().__init__(outcome)
        self.outcome = outcome


def _places(selection: Selection) -> dict[Any, int]:
    """Its places without their price types."""
    found: dict[Any, int] = {(line.section_id, line.position): 1 for line in selection.seats}
    for line in selection.ga:
        found[line.section_id] = found.get(line.section_id, 0) + line.quantity
    return found


def _difference(before: Selection, after: Selection) -> dict[str, int]:
    """By how many tickets each type is more, in the order in which types are locked."""
    types = sorted(before.types.keys() | after.types.keys())
    more = {quota_id(each): after.types.get(each, 0) - before.types.get(each, 0) for each in types}
    return {quota: n for quota, n in more.items() if n}
