"""A page deep in a list of fifty thousand rows costs what the first one costs, once the tables were analyzed."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg
import httpx
import pytest
from sqlalchemy import Engine, event

from onsale.local.engines import with_driver
from shared.concurrency.background import Loops
from shared.security.auth import AdminKeys
from tests.plans.conftest import LARGE, State
from tests.plans.cost import measure
from tests.plans.test_core_statements import SECRET, SERVICES, read

DEEP = 1_000  # rows from the end of the list
PAGES_MAX, EXAMINED_MAX = 1_000, 3_000
ENDPOINT = "ep_0000000000000001"
NEWEST_COMMAND = "SELECT command_id::text FROM orders.checkout_command ORDER BY created_at, command_id"
NEWEST_ORDER = 'SELECT reference FROM orders."order" ORDER BY created_at, reference'
NEWEST_CODE = "SELECT encode(substr(code_hash, 1, 8), 'hex') FROM queue.access_code ORDER BY created_at, code_hash"
LISTS = [  # the service, the list, and its ids in the order of reading, backwards
    ("orders", "/admin/orders", NEWEST_ORDER),
    ("orders", "/admin/orders?event_id=e", NEWEST_ORDER),
    ("orders", "/admin/orders/commands", NEWEST_COMMAND),
    ("orders", "/admin/orders/changes", "SELECT id FROM orders.audit_log ORDER BY id"),
    ("orders", f"/admin/orders/webhooks/{ENDPOINT}/deliveries",
     f"SELECT id FROM orders.webhook_delivery WHERE endpoint_id = '{ENDPOINT}' ORDER BY id"),
    ("orders", "/admin/orders/events/e/promo-codes/popular/uses",
     "SELECT reference FROM orders.promo_redemption WHERE code = 'POPULAR' ORDER BY created_at, reference"),
    ("orders", "/admin/orders/events/e/charges",
     "SELECT id FROM orders.money_entry WHERE kind = 'charge' ORDER BY id DESC"),
    ("queue", "/admin/queue/events/e/codes", NEWEST_CODE),
    ("queue", "/admin/queue/events/e/codes?lane=1", NEWEST_CODE),
    ("queue", "/admin/queue/events/e/changes", "SELECT id FROM queue.audit_log ORDER BY id"),
    ("inventory", "/admin/inventory/events/e/changes", "SELECT id FROM inventory.audit_log ORDER BY id"),
]  # fmt: skip


@contextmanager
def reads() -> Iterator[list[tuple[str, tuple[Any, ...]]]]:
    """The statements that read rows in the block, with their values."""
    recorded: list[tuple[str, tuple[Any, ...]]] = []

    def record(_: Any, __: Any, sql: str, parameters: Any, *___: Any) -> None:
        recorded.append((sql, tuple(parameters)))

    event.listen(Engine, "before_cursor_execute", record)
    try:
        yield recorded
    finally:
        event.remove(Engine, "before_cursor_execute", record)


@pytest.mark.parametrize(("service", "path", "backwards"), LISTS, ids=[path for _, path, _ in LISTS])
async def test_a_deep_page_costs_what_the_first_costs(
    service: str, path: str, backwards: str, databases: dict[State, str], redis_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(Loops, "every", lambda *_, **__: None)
    monkeypatch.setattr(Loops, "keep", lambda *_, **__: None)
    create_app, settings = SERVICES[service]
    url, keys = databases[LARGE, True], AdminKeys(f"root:admin:{SECRET}")
    app = create_app(settings(postgres_url=url, redis_url=redis_url, admin_keys=keys, log_requests=False))
    query = {"after" if path.endswith("/charges") else "before": await deep_cursor(url, backwards), "page_size": 50}
    async with app.router.lifespan_context(app):
        with reads() as statements:
            answer = await read(app, str(httpx.URL(path).copy_merge_params(query)))
    assert answer.status_code == 200, answer.text
    assert answer.json()["next"] or "lane" in path
    for sql, values in statements:
        cost = await measure(url, sql, values)
        assert max(cost.pages / PAGES_MAX, cost.examined / EXAMINED_MAX) <= 1, f"{cost}: {sql}"


async def deep_cursor(url: str, backwards: str) -> str | int:
    connection = await asyncpg.connect(with_driver(url))
    cursor: str | int = await connection.fetchval(f"{backwards} OFFSET {DEEP} LIMIT 1")
    await connection.close()
    return cursor
