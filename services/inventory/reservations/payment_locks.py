"""Reservations under their locks: whatever is decided about a payment is decided between these and the commit."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from services.inventory.reservations.repository import LockedReservation, ReservationRow, read
from shared.postgres.engine import statement

LOCK = statement(__package__, "lock_reservations")
LOCK_PAYERS = statement(__package__, "lock_payers")
Asked = dict[str, list[Any]]
Lock = Callable[[AsyncConnection, Asked], Awaitable[tuple[int, Mapping[str, ReservationRow]]]]


async def lock_reservations(connection: AsyncConnection, asked: Asked) -> tuple[int, Mapping[str, ReservationRow]]:
    """The ledger's clock (ms) under the locks, and the reservations by id with their places, which are read in a
    statement of its own.
    """
    now_ms: int = (await connection.execute(LOCK, {"ids": asked["ids"]})).one().now_ms
    return now_ms, await read(connection, asked["ids"])


async def lock_for_payment(connection: AsyncConnection, asked: Asked) -> tuple[int, Mapping[str, ReservationRow]]:
    """The same without the places, and with the customers' locks. Their number may be from before a part was given
    back while this waited; `given_back` tells.
    """
    rows = (await connection.execute(LOCK_PAYERS, asked)).all()
    payers = (LockedReservation(*[*own, [], [], int(quantity)]) for _, _, *own, quantity in rows if own[0] is not None)
    return rows[0].now_ms, {payer.reservation_id: payer for payer in payers}
