"""The invariants of orders and money (6 and 7), each as a query that must find nothing."""

from sqlalchemy import text

from shared.contracts.admin.orders import InvariantReport, InvariantResult
from shared.postgres.engine import AsyncEngine, raw_statement

CONFIRMED = text('SELECT count(*) FROM orders."order" WHERE event_id = :event_id AND confirmed_at IS NOT NULL')
REFERENCES_SHOWN_MAX = 5
SETTLED_AFTER_S = 10

CHECKS = {
    "6 one order per idempotency key": "order_per_idempotency_key",
    "6 money, refunds, mails and redemptions belong to an order": "parts_have_an_order",
    "6 one order per reservation": "order_per_reservation",
    "6 one live attempt per order": "live_attempt_per_order",
    "7 a confirmed order is paid exactly, or authorised": "confirmed_is_paid",
    "7 lines sum to the order's total": "lines_sum_to_total",
    "7 money without a sale is refunded or being refunded": "unmatched_money_is_refunded",
    "7 no charge is refunded beyond its amount": "refunds_within_charge",
    "7 an order's status matches its refunds": "status_matches_refunds",
    "7 no charge has refunds requested beyond its amount": "requested_refunds_within_charge",
    "7 tickets match the order's lines": "tickets_match_lines",
    "7 a refunded order has no valid ticket": "refunded_has_no_valid_ticket",
    "7 a refunded order keeps no money": "refunded_keeps_no_money",
}  # title: the statement in sql/ that finds violations


async def check_invariants(db: AsyncEngine, event_id: str) -> InvariantReport:
    """Inventory must have sold at least as many reservations as orders were `confirmed`."""
    results = []
    async with db.connect() as connection:
        confirmed = await connection.scalar(CONFIRMED, {"event_id": event_id})
        for invariant, name in CHECKS.items():
            query = text(f"{raw_statement(__package__, name)} LIMIT 1000")
            bound = {"event_id": event_id, "settled_after_s": SETTLED_AFTER_S}
            broken = (await connection.execute(query, bound)).scalars().all()
            detail = f"{len(broken)} broken: {', '.join(broken[:REFERENCES_SHOWN_MAX])}" if broken else "nothing found"
            results.append(InvariantResult(invariant=invariant, holds=not broken, detail=detail))
    return InvariantReport(confirmed=confirmed or 0, invariants=results)
