"""What PostgreSQL refuses by itself: money, payments and tickets that would count twice."""

from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

ORDER = """INSERT INTO orders."order" (reference, status, event_id, reservation_id, owner_id, total_minor, currency,
customer_name, customer_email, expires_at)
VALUES (:reference, 'pending', 'e', :reservation, 'e:h', 1, 'EUR', 'n', 'm', now())"""
ATTEMPT = """INSERT INTO orders.payment_attempt (reference, n, provider, method, amount_minor, currency, provider_key,
status) VALUES ('R', :n, 'p', 'm', 1, 'EUR', :key, 'processing')"""
MONEY = """INSERT INTO orders.money_entry (reference, kind, provider, amount_minor, currency, charge_ref, provider_ref,
occurred_at) VALUES ('R', 'charge', 'p', 1, 'EUR', 'c', 'c', now())"""
REFUND = """INSERT INTO orders.refund (reference, provider, charge_ref, amount_minor, currency, reason, requested_by,
idem_key, status) VALUES ('R', 'p', 'c', 1, 'EUR', 'r', 'b', 'k', 'requested')"""
LINE = """INSERT INTO orders.order_line
(reference, line_no, section_id, quantity, unit_price_minor, paid_minor, returned)
VALUES ('R', 1, 'GA', 2, 1, 2, :returned)"""
TWICE: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "uq_order_reservation_id": (
        ORDER,
        [{"reference": "S", "reservation": "r"}, {"reference": "T", "reservation": "r"}],
    ),
    "uq_payment_attempt_live": (ATTEMPT, [{"n": 1, "key": "R:1"}, {"n": 2, "key": "R:2"}]),
    "uq_money_entry_provider_provider_ref": (MONEY, [{}, {}]),
    "uq_refund_idem_key": (REFUND, [{}, {}]),
    "ck_order_line_returned": (LINE, [{"returned": 3}]),
}


@pytest.mark.parametrize("constraint", TWICE)
async def test_the_database_refuses_what_would_count_money_or_tickets_twice(
    postgres: AsyncEngine, constraint: str
) -> None:
    statement, values = TWICE[constraint]
    async with postgres.connect() as connection:
        await connection.execute(text(ORDER), {"reference": "R", "reservation": "of R"})
        for row in values[:-1]:
            await connection.execute(text(statement), row)
        with pytest.raises(IntegrityError, match=constraint):
            await connection.execute(text(statement), values[-1])
