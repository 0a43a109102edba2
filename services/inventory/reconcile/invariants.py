"""The invariants of an event's stock in Redis and PostgreSQL (docs/explain/architecture.md: 1, 2, 7 and 9), checked
while it sells.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.inventory.layout.layout import Layout
from services.inventory.reconcile.redis_diff import RedisStockState, compare_stock
from services.inventory.redis_stock.client import RedisStock
from services.inventory.store.reservations import LiveHold
from services.inventory.store.snapshot import MARKS, StockSnapshot
from shared.contracts.admin.inventory import StockInvariant, StockInvariants

# A feature's check of a stock: the sections, or what else, whose blocked places contradict its tables.
StockCheck = Callable[[AsyncConnection, str], Awaitable[Sequence[str]]]
SHOWN_MAX = 5
CHECKS_MAX, BETWEEN_CHECKS_S = 3, 0.5
EXPIRY_SLACK_MS = 10_000

SOLD_WITHOUT_ORDER = text(
    "SELECT reservation_id FROM inventory.reservation WHERE event_id = :event_id AND status = 'confirmed' "
    "AND order_reference IS NULL"
)


COUNT_CONFIRMED = text(
    "SELECT count(*) FROM inventory.reservation WHERE event_id = :event_id AND confirmed_at IS NOT NULL"
)


async def check_invariants(
    db: AsyncEngine, redis_stock: RedisStock, layout: Layout, more: Sequence[StockCheck] = ()
) -> StockInvariants:
    """Redis and PostgreSQL are read one after the other, so during a sale they may differ for a moment: only what is
    violated in every one of `CHECKS_MAX` checks is reported.
    """
    violated = await _violations(db, redis_stock, layout, more)
    for _ in range(CHECKS_MAX - 1):
        if not any(violated.values()):
            break
        await asyncio.sleep(BETWEEN_CHECKS_S)
        again = {name: set(found) for name, found in (await _violations(db, redis_stock, layout, more)).items()}
        violated = {name: [one for one in found if one in again[name]] for name, found in violated.items()}
    async with db.connect() as connection:
        confirmed = int(await connection.scalar(COUNT_CONFIRMED, {"event_id": layout.event_id}) or 0)
    return StockInvariants(confirmed=confirmed, invariants=[_invariant(*one) for one in violated.items()])


async def _violations(
    db: AsyncEngine, redis_stock: RedisStock, layout: Layout, more: Sequence[StockCheck]
) -> dict[str, list[str]]:
    """What violates each invariant at this moment."""
    in_redis, stock, drift = await compare_stock(db, redis_stock.redis, layout)
    async with db.connect() as connection:
        no_order = list((await connection.execute(SOLD_WITHOUT_ORDER, {"event_id": layout.event_id})).scalars())
        wrong = [one for check in more for one in await check(connection, layout.event_id)]
    disputed = [f"{seat.section_id}:{seat.position} {seat.actual}" for seat in stock.disputed]
    unsold = [str(seat.expected) for seat in stock.disputed if seat.buyers > (seat.actual == seat.expected)]
    at_ms = redis_stock.slowest_ms()
    differences = [" ".join(one.texts()) for one in drift]
    return {
        "1 database: available + held + sold + blocked = capacity": wrong + _unbalanced(stock),
        "1 Redis: available + held + sold + blocked = capacity": _unbalanced_in_redis(in_redis, stock),
        "1 Redis and the database agree": differences if in_redis.ready else ["Redis is not ready", *differences],
        "2 a seat has at most one live owner": disputed,
        "2 sold ≤ capacity": [s for s, x in stock.sections.items() if x.sold > x.capacity or x.available < 0],
        "7 confirmed ⇒ its seats are sold to it": no_order + unsold,
        "clocks of this process, the database and Redis differ by less than a minute": redis_stock.clocks.apart(),
        "9 nothing is held past its time": [record.reservation_id for record in stock.live if _overdue(record, at_ms)],
    }


def _overdue(record: LiveHold, at_ms: int) -> bool:
    """An unpaid hold that should have expired; one that is being paid waits for the payment's outcome."""
    return record.status == "pending_payment" and record.release_at_ms + EXPIRY_SLACK_MS < at_ms


def _unbalanced(stock: StockSnapshot) -> list[str]:
    """Sections whose counts do not add up, or whose row differs from its seats."""
    return [
        s for s, x in stock.sections.items()
        if x.available + x.held + x.sold + x.blocked != x.capacity or x.recorded != (x.available, x.blocked)
    ]  # fmt: skip


def _unbalanced_in_redis(redis_stock: RedisStockState, stock: StockSnapshot) -> list[str]:
    found = []
    for section_id, section in stock.sections.items():
        counts = [redis_stock.counts.get(f"{section_id}:{name}", 0) for name in MARKS]
        marks = redis_stock.maps.get(section_id)
        by_map = [marks.count(mark) for mark in MARKS.values()] if marks is not None else counts
        if sum(counts) != section.capacity or min(counts) < 0 or by_map != counts:
            found.append(f"{section_id} {counts}")
    return found


def _invariant(name: str, violated: list[str]) -> StockInvariant:
    detail = f"{len(violated)} violated: {', '.join(violated[:SHOWN_MAX])}" if violated else "no violation"
    return StockInvariant(invariant=name, holds=not violated, detail=detail)
