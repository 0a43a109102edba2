"""The orders of 0.1.0, carried into rows of their own: interrupted after a piece and continued, each value is compared.

An order was rows in seven tables; it is one row, and views have the columns that the tables had.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import asyncpg
from sqlalchemy.ext.asyncio import create_async_engine

from onsale.local.engines import with_driver
from services.orders.model.order import Order, ticket_id
from services.orders.store.store import REFERENCES_MAX, read_many
from shared.concurrency.coalescing import chunks
from shared.postgres.migrations import upgrade
from tests.support.wait import wait_until

TABLES = (
    "order", "order_line", "order_adjustment", "payment_attempt", "ticket", "checkout_command", "idempotency",
)  # fmt: skip
EACH, PIECE = 600, 2_000  # orders of each kind; orders that are carried at once
BEFORE, CARRYING = "0008", "0009"
ORDER = """SELECT reference, status, event_id, reservation_id, owner_id, lane, join_seq, total_minor, currency,
    customer_name, customer_email, customer_phone, language, created_at, expires_at, extended_at, grace_s, confirmed_at,
    fulfilled_at, ended_at, end_reason, cancel_requested_at, released_at, charge_ref, review_decision, version,
    traceparent
    FROM orders."order" """
COMMAND = """reference, command_type, caused_by, payload, status, attempts, created_at, processed_at, error_message
    FROM orders.checkout_command"""
REFUND = """SELECT r.idem_key, r.status, r.tickets, r.returned, r.created_at, r.done_at, c.reference, c.command_type,
    c.created_at
    FROM orders.refund r LEFT JOIN orders.checkout_command c USING (command_id)"""
OPEN = "reference, event_id, join_seq, sync_requested, errors, due_at"
KEY = "SELECT key_hash, fingerprint, reference FROM orders.idempotency WHERE scope LIKE '{}'"
# What is the same before and after: each as a query on the tables of 0.1.0, and one on what is now.
COMPARED: Mapping[str, tuple[str, str]] = {
    "orders": (ORDER, ORDER),
    "open orders": (
        f'SELECT {OPEN} FROM orders."order" WHERE due_at IS NOT NULL',
        f"SELECT {OPEN} FROM orders.open_order",
    ),
    "lines": (
        """SELECT reference, line_no, section_id, seat_id, quantity, unit_price_minor, returned,
        coalesce(paid_minor, quantity * unit_price_minor) FROM orders.order_line""",
        """SELECT reference, line_no, section_id, seat_id, quantity, unit_price_minor, returned, paid_minor
        FROM orders.order_line""",
    ),
    "adjustments": ("SELECT * FROM orders.order_adjustment",) * 2,
    "attempts": (
        """SELECT reference, n, provider, method, token, return_url, amount_minor, currency, provider_key, provider_ref,
        status, checkout_url, reason, errors, capture, created_at, changed_at FROM orders.payment_attempt""",
    ) * 2,
    "tickets": (
        """SELECT reference, line_no, n, event_id, ticket_id, issued_at, void_at, void_reason FROM orders.ticket""",
    ) * 2,
    "commands": (f"SELECT {COMMAND}",) * 2,
    "refunds": (REFUND, REFUND),
    "keys of orders": (
        KEY.format("POST /orders %"),
        'SELECT key_hash, fingerprint, reference FROM orders."order" WHERE key_hash IS NOT NULL',
    ),
    "keys of payments": (
        KEY.format("POST /orders/%"),
        """SELECT decode(attempt ->> 'key_hash', 'hex'), decode(attempt ->> 'fingerprint', 'hex'), reference
        FROM orders."order", jsonb_array_elements(attempts) AS attempt WHERE attempt ? 'key_hash'""",
    ),
    "keys of refunds": (
        KEY.format("POST /admin/%"),
        "SELECT decode(key_hash, 'hex'), decode(fingerprint, 'hex'), reference FROM orders.refund WHERE key_hash <> ''",
    ),
}  # fmt: skip
Read = Mapping[str, list[str]]


async def fill(connection: asyncpg.Connection) -> None:
    """A night of orders in the tables of 0.1.0."""
    script = await asyncio.to_thread(Path(__file__).with_name("orders_0_1.sql").read_text)
    await connection.execute(script.format(each=EACH))


async def read(connection: asyncpg.Connection, *, now: bool) -> Read:
    """Everything that is compared, as texts in order."""
    return {
        what: sorted(str(tuple(row)) for row in await connection.fetch(queries[now]))
        for what, queries in COMPARED.items()
    }


async def carry(connection: asyncpg.Connection, postgres_url: str) -> list[str]:
    """Upgrades, interrupted after the first piece by another session, and then to the end. What is wrong with that."""
    await upgrade(postgres_url, "orders", BEFORE)
    blocked = await connection.fetchval(
        'SELECT reference FROM orders_0_1."order" ORDER BY reference OFFSET $1 LIMIT 1', PIECE
    )
    blocker = await asyncpg.connect(with_driver(postgres_url))
    try:
        holding = blocker.transaction()
        await holding.start()
        await blocker.execute("INSERT INTO orders.\"order\" (reference, status) VALUES ($1, 'tombstone')", blocked)
        carrying = asyncio.create_task(upgrade(postgres_url, "orders", CARRYING))
        await wait_until(lambda: _carried(connection, PIECE), timeout_s=60)
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'onsale-migrate' AND datname = current_database()"
        )
        [ended] = await asyncio.gather(carrying, return_exceptions=True)
        await holding.rollback()
    finally:
        await blocker.close()
    await upgrade(postgres_url, "orders")
    return [] if isinstance(ended, Exception) else ["it was not interrupted"]


async def _carried(connection: asyncpg.Connection, orders: int) -> bool:
    return bool(await connection.fetchval('SELECT count(*) FROM orders."order"') == orders)


async def differences(connection: asyncpg.Connection, before: Read, postgres_url: str) -> list[str]:
    """What differs after the upgrade, and what today's code reads otherwise."""
    after = await read(connection, now=True)
    wrong = []
    for what, rows in before.items():
        gone, new = sorted({*rows} - {*after[what]}), sorted({*after[what]} - {*rows})
        if gone or new or len(rows) != len(after[what]) or not rows:
            wrong.append(f"{what}: {len(rows)} rows became {len(after[what])}; {gone[:1]} became {new[:1]}")
    left = await connection.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname = 'orders_0_1'")
    return wrong + await _misread(connection, postgres_url) + ["the old tables are still there"] * left


async def _misread(connection: asyncpg.Connection, postgres_url: str) -> list[str]:
    """Orders that today's code cannot read, or whose tickets it would give another id."""
    rows = await connection.fetch("SELECT reference FROM orders.\"order\" WHERE status <> 'tombstone'")
    references, found = [row["reference"] for row in rows], dict[str, Order]()
    db = create_async_engine(postgres_url)
    for page in chunks(references, REFERENCES_MAX):
        found |= await read_many(db, page)
    await db.dispose()
    wrong = [f"{reference} is not read" for reference in references if reference not in found]
    return wrong + [
        f"a ticket of {order.reference} has another id than today's code gives it"
        for order in found.values()
        if order.status == "pending"
        for line in order.lines
        if [ticket.id for ticket in line.tickets]
        != [ticket_id(order.reference, line.line_no, n) for n in range(1, line.quantity + 1)]
    ]
