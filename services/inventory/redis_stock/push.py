"""Push operators' stock changes from PostgreSQL to Redis: which seats are blocked, and how many GA places.

Each push carries the current rows with the event's version. Redis refuses a version older than its own, and then the
rows are read again, so pushes that overtake each other end right and repeating one does no harm.
"""

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.metrics import DRIFT
from services.inventory.redis_stock.client import RedisStock
from services.inventory.reservations.repository import read_seat_statuses
from services.inventory.reservations.selection import SeatPosition, StockSelection
from services.inventory.stock.change import DirtySet
from shared.concurrency.coalescing import chunks
from shared.postgres.engine import snapshot
from shared.redis.client import reply_status

SEATS_PER_SCRIPT = 500  # a script blocks Redis: a few milliseconds for so many
TRIES_MAX = 5
VERSION = text("SELECT version FROM inventory.event WHERE event_id = :event_id")
SECTIONS = text(
    "SELECT section_id, capacity, blocked FROM inventory.section "
    "WHERE event_id = :event_id AND section_id = ANY(CAST(:section_ids AS text[]))"
)


class _StockVersion(NamedTuple):
    """Some places in PostgreSQL at one version of the event; GA rows have the section's capacity and blocked places."""

    version: int
    blocked: list[SeatPosition]
    free: list[SeatPosition]
    ga: Sequence[Row[Any]]


async def push_stock(db: AsyncEngine, redis_stock: RedisStock, event_id: str, dirty: DirtySet) -> None:
    """Updates Redis for these places. If Redis is away, reconciliation corrects the difference later."""
    with redis_stock.follows([event_id]):
        for _ in range(TRIES_MAX):
            stock = await _read(db, event_id, dirty)
            if stock is None or await _apply(redis_stock, event_id, stock) != "stale":
                return
        DRIFT.labels("sync").inc()


async def _read(db: AsyncEngine, event_id: str, dirty: DirtySet) -> _StockVersion | None:
    """In one snapshot, so that the version belongs to the rows."""
    values: dict[str, Any] = {"event_id": event_id}
    async with snapshot(db) as connection:
        version: int | None = (await connection.execute(VERSION, values)).scalar()
        statuses = await read_seat_statuses(connection, event_id, sorted(dirty.seats))
        ga = (await connection.execute(SECTIONS, values | {"section_ids": sorted(dirty.ga)})).all()
    if version is None:
        return None
    blocked, free = (sorted(s for s in statuses if statuses[s] == status) for status in ("blocked", "available"))
    return _StockVersion(version, blocked, free, ga)


async def _apply(redis_stock: RedisStock, event_id: str, stock: _StockVersion) -> str:
    """Redis' reply: done, stale or not-ready. Up to `SEATS_PER_SCRIPT` seats per script, all GA places
    with the first.
    """
    call, version = partial(redis_stock.call, event_id=event_id), stock.version
    for row in stock.ga:
        reply = await call("resize", version=version, section_id=row.section_id, capacity=row.capacity)
        if reply_status(reply) != "done":
            return reply_status(reply)
    ga = [part for row in stock.ga for part in (row.section_id, row.blocked)]
    for blocked, free in itertools.zip_longest(_chunks(stock.blocked), _chunks(stock.free), fillvalue=""):
        reply = await call("block", version=version, blocked=blocked, free=free, ga=ga)
        ga = []
        if reply_status(reply) != "done":
            return reply_status(reply)
    return "done"


def _chunks(seats: Sequence[SeatPosition]) -> list[str]:
    """As selection texts; at least one, because GA places go with the first."""
    return [StockSelection(tuple(some)).text() for some in chunks(seats, SEATS_PER_SCRIPT)] or [""]
