"""The invariants inventory answers for, looked at live over gate and ledger (architecture §8: 1, 2, 7 and 9)."""

from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.inventory.gate import Gate
from services.inventory.layout import Layout
from services.inventory.reconcile import GateStock, differences, read_gate
from services.inventory.stocktake import Stock, take_stock

Finding = dict[str, Any]
SHOWN_MAX = 5

WRONG_REMAINING = text(
    "SELECT s.section_id FROM inventory.section s WHERE s.event_id = :event_id AND s.seats_remaining <> CASE s.kind "
    "WHEN 'seated' THEN (SELECT count(*) FROM inventory.seat x WHERE x.event_id = s.event_id "
    " AND x.section_id = s.section_id AND x.status = 'available') "
    "ELSE s.capacity - (SELECT coalesce(sum(g.quantity), 0) FROM inventory.reservation_ga g "
    " JOIN inventory.reservation r USING (event_id, reservation_id) WHERE g.event_id = s.event_id "
    " AND g.section_id = s.section_id AND r.status IN ('pending_payment', 'paying', 'confirmed')) END"
)
WRONG_OWNERS = text(
    "SELECT s.section_id || '-' || s.row || '-' || s.number AS seat_id FROM inventory.seat s "
    "LEFT JOIN inventory.reservation r USING (event_id, reservation_id) "
    "LEFT JOIN inventory.reservation_seat x USING (event_id, reservation_id, section_id, position) "
    "WHERE s.event_id = :event_id AND s.status IN ('held', 'sold') AND (x.position IS NULL OR r.status IS NULL OR "
    " r.status NOT IN ('pending_payment', 'paying', 'confirmed') OR (s.status = 'sold') <> (r.status = 'confirmed'))"
)
OWNED_TWICE = text(
    "SELECT x.section_id || ':' || x.position AS place FROM inventory.reservation_seat x "
    "JOIN inventory.reservation r USING (event_id, reservation_id) WHERE x.event_id = :event_id "
    "AND r.status IN ('pending_payment', 'paying', 'confirmed') GROUP BY x.section_id, x.position HAVING count(*) > 1"
)
NOT_SOLD = text(
    "SELECT r.reservation_id FROM inventory.reservation r WHERE r.event_id = :event_id AND r.status = 'confirmed' "
    "AND (r.order_reference IS NULL OR EXISTS (SELECT 1 FROM inventory.reservation_seat x "
    " JOIN inventory.seat s USING (event_id, section_id, position) WHERE x.event_id = r.event_id "
    " AND x.reservation_id = r.reservation_id "
    " AND (s.status <> 'sold' OR s.reservation_id IS DISTINCT FROM r.reservation_id)))"
)


async def audit(engine: AsyncEngine, gate: Gate, layout: Layout) -> list[Finding]:
    """Each invariant with whether it holds and what was seen. Invariant 9 speaks of an event at rest."""
    in_gate = await read_gate(gate.redis, layout.event_id, layout)
    stock = await take_stock(engine, layout.event_id)
    async with engine.connect() as connection:
        wrong = {
            name: await _names(connection, query, layout.event_id)
            for name, query in (
                ("remaining", WRONG_REMAINING), ("owners", WRONG_OWNERS), ("twice", OWNED_TWICE), ("unsold", NOT_SOLD)
            )
        }  # fmt: skip
    return [
        _finding("1 ledger: available + held + sold + blocked = capacity", wrong["remaining"] + _unequal(stock)),
        _finding("1 gate: available + held + sold + blocked = capacity", _unequal_gate(in_gate, stock)),
        _finding("1 gate and ledger agree", [" ".join(d) for d in differences(in_gate, stock)], ready=in_gate.ready),
        _finding("2 a seat has at most one live owner", wrong["owners"] + wrong["twice"]),
        _finding("2 sold ≤ capacity", [s for s, x in stock.sections.items() if x.sold > x.capacity or x.available < 0]),
        _finding("7 confirmed ⇒ its seats are sold to it", wrong["unsold"]),
        _finding("9 nothing stays held", [record.reservation_id for record in stock.live]),
    ]


async def _names(connection: AsyncConnection, query: Any, event_id: str) -> list[str]:
    return [str(name) for name in (await connection.execute(query, {"event_id": event_id})).scalars()]


def _unequal(stock: Stock) -> list[str]:
    return [s for s, x in stock.sections.items() if x.blocked < 0 or (x.marks and x.marks.count("x") != x.blocked)]


def _unequal_gate(gate: GateStock, stock: Stock) -> list[str]:
    names = ("available", "held", "sold", "blocked")
    wrong = []
    for section_id, section in stock.sections.items():
        counts = [gate.counts.get(f"{section_id}:{name}", 0) for name in names]
        marks = gate.maps.get(section_id)
        by_map = [marks.count(mark) for mark in ".hsx"] if marks is not None else counts
        if sum(counts) != section.capacity or min(counts) < 0 or by_map != counts:
            wrong.append(f"{section_id} {counts}")
    return wrong


def _finding(invariant: str, broken: list[str], *, ready: bool = True) -> Finding:
    detail = "" if ready else "the gate is not ready; "
    detail += f"{len(broken)} broken: {', '.join(broken[:SHOWN_MAX])}" if broken else "holds"
    return {"invariant": invariant, "holds": ready and not broken, "detail": detail}
