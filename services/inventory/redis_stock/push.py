"""After an operator changed the stock in the ledger, the gate is told: what is blocked, what is not, and how many.

What is said is always what the ledger says now, with the event's version; the gate refuses what is older than what it
heard, and then the ledger is read again. So words that overtake each other end right, and repeating one does no harm.
"""

import itertools
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.metrics import DRIFT
from services.inventory.redis_keys import Keys
from services.inventory.redis_stock.client import RedisStock, load
from services.inventory.reservations.selection import selection_text
from services.inventory.stock.change import DirtySet, SeatPosition, seat_columns
from shared.postgres.engine import snapshot
from shared.redis.client import REDIS_AWAY
from shared.redis.scripts import word
from shared.runtime.logging import data

log = logging.getLogger("onsale.inventory")
BLOCK, RESIZE = load("block"), load("resize")
SEATS_AT_ONCE = 500  # the engine answers nobody else meanwhile: a few milliseconds
TRIES_MAX = 5
VERSION = text("SELECT version FROM inventory.event WHERE event_id = :event_id")
SEATS = text(
    "SELECT section_id, position, status FROM inventory.seat s "
    "JOIN (SELECT CAST(:event_id AS text) AS event_id, a.* "
    "FROM unnest(CAST(:section_ids AS text[]), CAST(:positions AS int[])) AS a (section_id, position) OFFSET 0) "
    "AS asked USING (event_id, section_id, position) WHERE s.status IN ('available', 'blocked')"
)
SECTIONS = text(
    "SELECT section_id, capacity, blocked FROM inventory.section "
    "WHERE event_id = :event_id AND section_id = ANY(CAST(:section_ids AS text[]))"
)


@dataclass(frozen=True, slots=True)
class _StockVersion:
    """The ledger's word on some places, at one version of the event; GA as (section_id, capacity, blocked)."""

    version: int
    blocked: list[SeatPosition]
    free: list[SeatPosition]
    ga: list[tuple[str, int, int]]


async def push_stock(db: AsyncEngine, redis_stock: RedisStock, event_id: str, touched: DirtySet) -> None:
    """Brings the gate in line with the ledger for these places. What it misses is drift, found by reconcile."""
    try:
        for _ in range(TRIES_MAX):
            ledger = await _read(db, event_id, sorted(touched.seats), sorted(touched.ga))
            if ledger is None or await _apply(redis_stock, event_id, ledger) != "late":
                return
    except REDIS_AWAY as away:
        log.warning("gate.behind", extra=data(event_id=event_id, error=type(away).__name__))
    DRIFT.labels("follow-up").inc()


async def _read(
    db: AsyncEngine, event_id: str, seats: Sequence[SeatPosition], ga: Sequence[str]
) -> _StockVersion | None:
    """In one snapshot, so that the version fits the rest."""
    which: dict[str, Any] = {"event_id": event_id}
    async with snapshot(db) as connection:
        version: int | None = (await connection.execute(VERSION, which)).scalar()
        rows = (await connection.execute(SEATS, which | seat_columns(seats))).all()
        sections = (await connection.execute(SECTIONS, which | {"section_ids": list(ga)})).all()
    if version is None:
        return None
    by_status: dict[str, list[SeatPosition]] = {"available": [], "blocked": []}
    for row in rows:
        by_status[row.status].append((row.section_id, row.position))
    counts = [(row.section_id, row.capacity, row.blocked) for row in sections]
    return _StockVersion(version, sorted(by_status["blocked"]), sorted(by_status["available"]), counts)


async def _apply(redis_stock: RedisStock, event_id: str, ledger: _StockVersion) -> str:
    """The gate's answer: done, late or not-ready. Up to 500 seats in one step, together with all GA places."""
    keys = Keys.of(event_id)
    for section_id, capacity, _ in ledger.ga:
        some = keys.only("meta", "counts", "dirty")
        said = await RESIZE(redis_stock.redis, **some, version=ledger.version, section_id=section_id, capacity=capacity)
        if word(said) != "done":
            return word(said)
    ga = [part for section_id, _, blocked in ledger.ga for part in (section_id, blocked)]
    some = keys.only("meta", "counts", "dirty", "map")
    for blocked, free in itertools.zip_longest(_chunks(ledger.blocked), _chunks(ledger.free), fillvalue=""):
        said = await BLOCK(redis_stock.redis, **some, version=ledger.version, blocked=blocked, free=free, ga=ga)
        ga = []
        if word(said) != "done":
            return word(said)
    return "done"


def _chunks(seats: Sequence[SeatPosition]) -> list[str]:
    """As baskets; one at least, since GA places travel with the first."""
    return [selection_text(seats[i : i + SEATS_AT_ONCE], ()) for i in range(0, max(1, len(seats)), SEATS_AT_ONCE)]
