"""The tables: as the migrations make them, what PostgreSQL refuses by itself, and what the audit finds: money, payments
and tickets that would count twice.
"""

from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from shared.postgres.migrations import current_revision_at, downgrade, drift, upgrade
from shared.postgres.schema_version import revisions
from shared.web.parts import parts_of
from tests.orders.manual_orders import ManualShop

ORDER = """INSERT INTO orders."order" (reference, status, event_id, reservation_id, owner_id, key_hash, total_minor,
currency, customer_name, customer_email, expires_at)
VALUES (:reference, 'pending', 'e', :reservation, 'e:h', :key, 1, 'EUR', 'n', 'm', now())"""
MONEY = """INSERT INTO orders.money_entry (reference, kind, provider, amount_minor, currency, charge_ref, provider_ref,
occurred_at) VALUES ('R', 'charge', 'p', 1, 'EUR', 'c', 'c', now())"""
REFUND = """INSERT INTO orders.refund (reference, provider, charge_ref, amount_minor, currency, reason, requested_by,
idem_key, status) VALUES ('R', 'p', 'c', 1, 'EUR', 'r', 'b', 'k', 'requested')"""
TWICE: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "pk_order": (ORDER, [{"reference": "R", "reservation": "r", "key": b"k"}]),
    "uq_order_reservation_id": (
        ORDER,
        [{"reference": "S", "reservation": "r", "key": b"k"}, {"reference": "T", "reservation": "r", "key": b"l"}],
    ),
    "uq_order_owner_id_key_hash": (
        ORDER,
        [{"reference": "S", "reservation": "r", "key": b"k"}, {"reference": "T", "reservation": "s", "key": b"k"}],
    ),
    "uq_money_entry_provider_provider_ref": (MONEY, [{}, {}]),
    "uq_refund_idem_key": (REFUND, [{}, {}]),
}


@pytest.mark.parametrize("constraint", TWICE)
async def test_the_database_refuses_what_would_count_money_or_tickets_twice(
    postgres: AsyncEngine, constraint: str
) -> None:
    statement, values = TWICE[constraint]
    async with postgres.connect() as connection:
        await connection.execute(text(ORDER), {"reference": "R", "reservation": "of R", "key": b"of R"})
        for row in values[:-1]:
            await connection.execute(text(statement), row)
        with pytest.raises(IntegrityError, match=constraint):
            await connection.execute(text(statement), values[-1])


async def test_the_audit_finds_a_second_live_attempt_and_tickets_returned_too_often(manual: ManualShop) -> None:
    """Both are in the row of their order, which is written by whoever holds it alone."""
    twice, returned = [await manual.order(method="redirect") for _ in range(2)]
    await manual.work()
    assert await manual.violated_invariants() == {}
    await manual.change_parts(twice, "attempts", lambda attempts: attempts.append({**attempts[0], "status": "unknown"}))
    await manual.change_parts(returned, "lines", lambda lines: lines[0].update(returned=2))
    violated = await manual.violated_invariants()
    assert set(violated) == {"6 one live attempt per order", "7 tickets match the order's lines"}
    assert (twice in violated["6 one live attempt per order"], returned in str(violated)) == (True, True)
    await manual.change_parts(twice, "attempts", lambda attempts: attempts[0].update(status="failed"))
    await manual.change_parts(returned, "lines", lambda lines: lines[0].update(returned=1))
    assert await manual.violated_invariants() == {}


@pytest.mark.usefixtures("own_database")
async def test_tables_and_migrations_agree(postgres_url: str) -> None:
    parts_of("orders")  # they have tables, too
    await drift(postgres_url, "orders")


@pytest.mark.usefixtures("own_database")
async def test_a_downgrade_is_refused_and_changes_nothing(postgres_url: str) -> None:
    """Going back means the backup: the version before cannot read what this one wrote."""
    for revision in ("base", "0006"):
        with pytest.raises(RuntimeError, match="Restore the backup"):
            await downgrade(postgres_url, "orders", revision)
    assert await current_revision_at(postgres_url, "orders") == revisions("orders")[-1]
    await drift(postgres_url, "orders")


@pytest.mark.usefixtures("own_database")
async def test_a_second_upgrade_changes_nothing(postgres_url: str) -> None:
    for _ in range(2):
        await upgrade(postgres_url, "orders")
        assert await current_revision_at(postgres_url, "orders") == revisions("orders")[-1]
    await drift(postgres_url, "orders")
