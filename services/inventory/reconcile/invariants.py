"""The invariants inventory answers for, looked at live over gate and ledger (architecture §8: 1, 2, 7 and 9)."""

import asyncio
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.inventory.catalogue.layout import Layout
from services.inventory.reconcile.redis_diff import RedisStockState, compare, read_redis_stock
from services.inventory.redis_stock.client import RedisStock
from services.inventory.reservations.repository import Live
from services.inventory.stock.snapshot import StockSnapshot, read_stock

Finding = dict[str, Any]
SHOWN_MAX = 5
LOOKS_MAX, BETWEEN_LOOKS_S = 3, 0.5
SWEEP_SLACK_MS = 10_000

WRONG_KEPT = text(
    "SELECT s.section_id FROM inventory.section s JOIN (SELECT event_id, section_id, sum(kept) AS kept "
    " FROM inventory.allotment_ga WHERE event_id = :event_id GROUP BY event_id, section_id) AS aside "
    "USING (event_id, section_id) WHERE s.kind = 'ga' AND s.blocked < aside.kept "
    "UNION ALL SELECT a.allotment_id FROM (SELECT event_id, allotment_id FROM inventory.allotment_ga "
    " WHERE event_id = :event_id AND kept > 0 UNION SELECT event_id, allotment_id FROM inventory.seat "
    " WHERE event_id = :event_id AND allotment_id IS NOT NULL) AS aside "
    "JOIN inventory.allotment a USING (event_id, allotment_id) WHERE a.opened_at IS NOT NULL"
)
NO_ORDER = text(
    "SELECT reservation_id FROM inventory.reservation WHERE event_id = :event_id AND status = 'confirmed' "
    "AND order_reference IS NULL"
)


async def audit(db: AsyncEngine, redis_stock: RedisStock, layout: Layout) -> list[Finding]:
    """Each invariant with whether it holds and what was seen.

    Gate and ledger are read one after the other, so in the middle of a sale they may differ for a moment: only what is
    wrong in every one of a few looks is broken.
    """
    broken = await _look(db, redis_stock, layout)
    for _ in range(LOOKS_MAX - 1):
        if not any(broken.values()):
            break
        await asyncio.sleep(BETWEEN_LOOKS_S)
        again = {name: set(found) for name, found in (await _look(db, redis_stock, layout)).items()}
        broken = {name: [what for what in found if what in again[name]] for name, found in broken.items()}
    return [_finding(name, found) for name, found in broken.items()]


async def _look(db: AsyncEngine, redis_stock: RedisStock, layout: Layout) -> dict[str, list[str]]:
    """What is wrong at this moment, by invariant."""
    in_gate = await read_redis_stock(redis_stock.redis, layout.event_id, layout)
    stock = await read_stock(db, layout.event_id, asked=in_gate.holds, check=True)
    async with db.connect() as connection:
        kept, no_order = [await _names(connection, query, layout.event_id) for query in (WRONG_KEPT, NO_ORDER)]
    disputed = [f"{seat.section_id}:{seat.position} {seat.seen}" for seat in stock.disputed]
    unsold = [seat.should_be for seat in stock.disputed if seat.buyers > (seat.seen == seat.should_be)]
    at_ms = redis_stock.slowest_ms()
    apart = [" ".join(difference) for difference in await compare(in_gate, stock)]
    return {
        "1 ledger: available + held + sold + blocked = capacity": kept + _unequal(stock),
        "1 gate: available + held + sold + blocked = capacity": _unequal_redis(in_gate, stock),
        "1 gate and ledger agree": apart if in_gate.ready else ["the gate is not ready", *apart],
        "2 a seat has at most one live owner": disputed,
        "2 sold ≤ capacity": [s for s, x in stock.sections.items() if x.sold > x.capacity or x.available < 0],
        "7 confirmed ⇒ its seats are sold to it": no_order + unsold,
        "clocks: ours, the ledger's and the engine's are less than a minute apart": redis_stock.clocks.apart(),
        "9 nothing is held past its time": [record.reservation_id for record in stock.live if _overdue(record, at_ms)],
    }


def _overdue(record: Live, at_ms: int) -> bool:
    """A hold nobody pays for that should have gone back by now; one that is being paid waits for its outcome."""
    return record.status == "pending_payment" and record.release_at_ms + SWEEP_SLACK_MS < at_ms


async def _names(connection: AsyncConnection, query: Any, event_id: str) -> list[str]:
    return [str(name) for name in (await connection.execute(query, {"event_id": event_id})).scalars()]


def _unequal(stock: StockSnapshot) -> list[str]:
    """Also where a section's row says something else than its seats."""
    return [
        s for s, x in stock.sections.items()
        if x.available + x.held + x.sold + x.blocked != x.capacity or x.noted != (x.available, x.blocked)
    ]  # fmt: skip


def _unequal_redis(redis_stock: RedisStockState, stock: StockSnapshot) -> list[str]:
    names = ("available", "held", "sold", "blocked")
    wrong = []
    for section_id, section in stock.sections.items():
        counts = [redis_stock.counts.get(f"{section_id}:{name}", 0) for name in names]
        marks = redis_stock.maps.get(section_id)
        by_map = [marks.count(mark) for mark in ".hsx"] if marks is not None else counts
        if sum(counts) != section.capacity or min(counts) < 0 or by_map != counts:
            wrong.append(f"{section_id} {counts}")
    return wrong


def _finding(invariant: str, broken: list[str]) -> Finding:
    detail = f"{len(broken)} broken: {', '.join(broken[:SHOWN_MAX])}" if broken else "nothing found"
    return {"invariant": invariant, "holds": not broken, "detail": detail}


async def confirmed(db: AsyncEngine, event_id: str) -> int:
    """How many reservations were ever sold to an order."""
    question = text(
        "SELECT count(*) FROM inventory.reservation WHERE event_id = :event_id AND confirmed_at IS NOT NULL"
    )
    async with db.connect() as connection:
        return int(await connection.scalar(question, {"event_id": event_id}) or 0)
