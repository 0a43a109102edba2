"""Push operators' stock changes from PostgreSQL to Redis: which seats are blocked, and how many GA places.

Each push carries the current rows with the event's version. Redis refuses a version older than its own, and then the
rows are read again, so pushes that overtake each other end right and repeating one does no harm.
"""

import itertools
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.metrics import DRIFT
from services.inventory.redis_stock.client import RedisStock
from services.inventory.reservations.selection import SeatPosition, StockSelection, seat_columns
from services.inventory.stock.change import DirtySet
from shared.concurrency.group_commit import chunks
from shared.postgres.engine import snapshot, statement
from shared.redis.client import REDIS_AWAY
from shared.redis.scripts import reply_status
from shared.runtime.logging import data

log = logging.getLogger("onsale.inventory")
SEATS_PER_SCRIPT = 500  # a script blocks Redis: a few milliseconds for so many
TRIES_MAX = 5
VERSION = text("SELECT version FROM inventory.event WHERE event_id = :event_id")
SEATS = statement(__package__, "pushed_seats")
SECTIONS = text(
    "SELECT section_id, capacity, blocked FROM inventory.section "
    "WHERE event_id = :event_id AND section_id = ANY(CAST(:section_ids AS text[]))"
)


@dataclass(frozen=True, slots=True)
class _StockVersion:
    """Some places in PostgreSQL at one version of the event; GA as (section_id, capacity, blocked)."""

    version: int
    blocked: list[SeatPosition]
    free: list[SeatPosition]
    ga: list[tuple[str, int, int]]


async def push_stock(db: AsyncEngine, redis_stock: RedisStock, event_id: str, dirty: DirtySet) -> None:
    """Updates Redis for these places. If Redis is away, reconciliation corrects the difference later."""
    try:
        for _ in range(TRIES_MAX):
            stock = await _read(db, event_id, sorted(dirty.seats), sorted(dirty.ga))
            if stock is None or await _apply(redis_stock, event_id, stock) != "stale":
                return
    except REDIS_AWAY as away:
        log.warning("redis_stock.sync_failed", extra=data(event_id=event_id, error=type(away).__name__))
    DRIFT.labels("sync").inc()


async def _read(
    db: AsyncEngine, event_id: str, seats: Sequence[SeatPosition], ga: Sequence[str]
) -> _StockVersion | None:
    """In one snapshot, so that the version belongs to the rows."""
    values: dict[str, Any] = {"event_id": event_id}
    async with snapshot(db) as connection:
        version: int | None = (await connection.execute(VERSION, values)).scalar()
        rows = (await connection.execute(SEATS, values | seat_columns(seats))).all()
        sections = (await connection.execute(SECTIONS, values | {"section_ids": list(ga)})).all()
    if version is None:
        return None
    by_status: dict[str, list[SeatPosition]] = {"available": [], "blocked": []}
    for row in rows:
        by_status[row.status].append((row.section_id, row.position))
    counts = [(row.section_id, row.capacity, row.blocked) for row in sections]
    return _StockVersion(version, sorted(by_status["blocked"]), sorted(by_status["available"]), counts)


async def _apply(redis_stock: RedisStock, event_id: str, stock: _StockVersion) -> str:
    """Redis' reply: done, stale or not-ready. Up to `SEATS_PER_SCRIPT` seats per script, all GA places
    with the first.
    """
    version = stock.version
    for section_id, capacity, _ in stock.ga:
        reply = await redis_stock.call("resize", event_id, version=version, section_id=section_id, capacity=capacity)
        if reply_status(reply) != "done":
            return reply_status(reply)
    ga = [part for section_id, _, blocked in stock.ga for part in (section_id, blocked)]
    for blocked, free in itertools.zip_longest(_chunks(stock.blocked), _chunks(stock.free), fillvalue=""):
        reply = await redis_stock.call("block", event_id, version=version, blocked=blocked, free=free, ga=ga)
        ga = []
        if reply_status(reply) != "done":
            return reply_status(reply)
    return "done"


def _chunks(seats: Sequence[SeatPosition]) -> list[str]:
    """As selection texts; at least one, because GA places go with the first."""
    return [StockSelection(tuple(some)).text() for some in chunks(seats, SEATS_PER_SCRIPT)] or [""]
