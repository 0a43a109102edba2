"""The promises about orders and money (invariants 6 and 7), each as a question to the ledger that must find nothing."""

from typing import Any

from sqlalchemy import text

from shared.postgres.engine import AsyncEngine

SHOWN_MAX = 5
SETTLED_AFTER_S = 10

CHECKS = {
    "6 one order per idempotency key": """
        SELECT i.reference FROM orders.idempotency i LEFT JOIN orders."order" o USING (reference)
        WHERE o.reference IS NULL OR o.status = 'tombstone'""",
    "6 nothing belongs to an order that is not": """
        SELECT l.reference FROM (
            SELECT reference FROM orders.order_line UNION ALL SELECT reference FROM orders.order_adjustment
            UNION ALL SELECT reference FROM orders.payment_attempt) AS l
        LEFT JOIN orders."order" o USING (reference) WHERE o.reference IS NULL OR o.status = 'tombstone'""",
    "6 one order per reservation": """
        SELECT reservation_id FROM orders."order"
        WHERE event_id = :event_id AND status <> 'tombstone' GROUP BY reservation_id HAVING count(*) > 1""",
    "6 one live attempt per order": """
        SELECT a.reference FROM orders.payment_attempt a JOIN orders."order" o USING (reference)
        WHERE o.event_id = :event_id
        AND a.status IN ('created', 'unknown', 'requires_action', 'processing', 'authorised')
        GROUP BY a.reference HAVING count(*) > 1""",
    "7 a confirmed order is paid exactly, or authorised": """
        SELECT o.reference FROM orders."order" o
        WHERE o.event_id = :event_id AND o.status IN ('confirmed', 'partially_refunded') AND o.total_minor > 0
        AND NOT EXISTS (
            SELECT FROM orders.money_entry m WHERE m.reference = o.reference AND m.kind = 'charge'
            AND m.charge_ref = o.charge_ref AND m.amount_minor = o.total_minor AND m.currency = o.currency)
        AND NOT EXISTS (
            SELECT FROM orders.payment_attempt a WHERE a.reference = o.reference AND a.status = 'authorised'
            AND a.provider_ref = o.charge_ref AND a.amount_minor = o.total_minor AND a.currency = o.currency)""",
    "7 what tickets bear is the order's total": """
        SELECT o.reference FROM orders."order" o JOIN orders.order_line l USING (reference)
        WHERE o.event_id = :event_id GROUP BY o.reference, o.total_minor
        HAVING o.total_minor <> sum(coalesce(l.paid_minor, l.quantity * l.unit_price_minor))""",
    "7 money that no sale stands behind went back or is going back": """
        SELECT m.reference FROM orders.money_entry m JOIN orders."order" o USING (reference)
        WHERE o.event_id = :event_id AND m.kind = 'charge' AND o.status <> 'review'
        AND m.created_at < now() - make_interval(secs => :settled_after_s)
        AND NOT (o.status IN ('confirmed', 'partially_refunded', 'refunded') AND o.charge_ref = m.charge_ref)
        AND m.amount_minor > (SELECT coalesce(sum(r.amount_minor), 0) FROM orders.money_entry r
            WHERE r.reference = m.reference AND r.kind = 'refund' AND r.charge_ref = m.charge_ref)""",
    "7 nothing was refunded beyond its charge": """
        SELECT m.reference FROM orders.money_entry m JOIN orders."order" o USING (reference)
        WHERE o.event_id = :event_id AND m.kind = 'charge'
        AND m.amount_minor < (SELECT coalesce(sum(r.amount_minor), 0) FROM orders.money_entry r
            WHERE r.reference = m.reference AND r.kind = 'refund' AND r.charge_ref = m.charge_ref)""",
    "7 what an order keeps is what its state says": """
        SELECT o.reference FROM orders."order" o CROSS JOIN LATERAL (
            SELECT coalesce(sum(m.amount_minor), 0) AS minor FROM orders.money_entry m
            WHERE m.reference = o.reference AND m.kind = 'refund' AND m.charge_ref = o.charge_ref) AS back
        WHERE o.event_id = :event_id AND o.charge_ref IS NOT NULL AND CASE o.status
            WHEN 'confirmed' THEN back.minor <> 0
            WHEN 'partially_refunded' THEN back.minor NOT BETWEEN 1 AND o.total_minor - 1
            WHEN 'refunded' THEN back.minor < o.total_minor END""",
    "7 no more is on its way back than was charged": """
        SELECT m.reference FROM orders.money_entry m JOIN orders."order" o USING (reference)
        WHERE o.event_id = :event_id AND m.kind = 'charge'
        AND m.amount_minor < (SELECT coalesce(sum(r.amount_minor), 0) FROM orders.refund r
            WHERE r.reference = m.reference AND r.charge_ref = m.charge_ref AND r.status <> 'refused')""",
    "7 an order's tickets are those of its lines": """
        SELECT o.reference FROM orders."order" o
        WHERE o.event_id = :event_id AND o.fulfilled_at IS NOT NULL
        AND (SELECT count(*) FROM orders.ticket t WHERE t.reference = o.reference)
            <> (SELECT sum(l.quantity) FROM orders.order_line l WHERE l.reference = o.reference)""",
    "7 a refunded order has no ticket that is good": """
        SELECT o.reference FROM orders."order" o
        WHERE o.event_id = :event_id AND o.status = 'refunded'
        AND EXISTS (SELECT FROM orders.ticket t WHERE t.reference = o.reference AND t.void_at IS NULL)""",
    "7 a refunded order keeps no money": """
        SELECT o.reference FROM orders."order" o
        WHERE o.event_id = :event_id AND o.status = 'refunded' AND 0 <> (
            SELECT coalesce(sum(CASE m.kind WHEN 'charge' THEN m.amount_minor ELSE -m.amount_minor END), 0)
            FROM orders.money_entry m
            WHERE m.reference = o.reference AND m.charge_ref = coalesce(o.charge_ref, m.charge_ref))""",
}


async def check(db: AsyncEngine, event_id: str) -> list[dict[str, Any]]:
    """One line per promise: `{invariant, holds, detail}`; `detail` names the first few that break it."""
    lines = []
    async with db.connect() as connection:
        for invariant, question in CHECKS.items():
            bound = {"event_id": event_id, "settled_after_s": SETTLED_AFTER_S}
            broken = (await connection.execute(text(f"{question} LIMIT 1000"), bound)).scalars().all()
            detail = f"{len(broken)} broken: {', '.join(broken[:SHOWN_MAX])}" if broken else "nothing found"
            lines.append({"invariant": invariant, "holds": not broken, "detail": detail})
    return lines


async def confirmed(db: AsyncEngine, event_id: str) -> int:
    """How many orders were ever confirmed; inventory must have sold at least as many reservations."""
    question = text('SELECT count(*) FROM orders."order" WHERE event_id = :event_id AND confirmed_at IS NOT NULL')
    async with db.connect() as connection:
        return int(await connection.scalar(question, {"event_id": event_id}) or 0)
