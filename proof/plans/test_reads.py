"""What a service reads: the cost of every statement that it composes with SQLAlchemy Core depends on the rows it
returns, and a page deep in a list costs what the first one costs.

Every GET endpoint and the background loops of a service run once on tables of fifty thousand rows. Each composed
statement that they executed is then measured, on analyzed tables and on tables that never were.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import asyncpg
import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import Engine, TextClause, event

from features.support.orders.endpoints import request_next_batch
from features.webhooks.orders.dispatcher import WebhookDispatcher
from onsale.local.engines import Engines, with_driver
from proof.plans.conftest import LARGE, State
from proof.plans.statements import ids, measure
from services.inventory.app import create_app as inventory
from services.inventory.settings import Settings as InventorySettings
from services.orders.app import create_app as orders
from services.orders.settings import Settings as OrdersSettings
from services.queue.app import create_app as queue
from services.queue.settings import Settings
from shared.concurrency.background import Loops
from shared.security.auth import AdminKeys
from shared.web.app import public
from shared.web.parts import with_settings_of_parts
from tests.support.engines.engines import in_database, sql

SECRET = "an admin's secret for tests only"
SERVICES: dict[str, tuple[Callable[..., FastAPI], type[Any]]] = {
    "inventory": (inventory, with_settings_of_parts(InventorySettings, "inventory")), "queue": (queue, Settings),
    "orders": (orders, with_settings_of_parts(OrdersSettings, "orders")),
}  # fmt: skip
PATH_VALUES = {
    "event_id": "e", "endpoint_id": "ep_0000000000000001", "code": "CODE1", "ticket_id": "t6", "section_id": "S1",
    "what": "seats", "reservation_id": ids(1, 1)[0], "allotment_id": "a1",
    "file": "0" * 64 + ".webp", "name": "hall",
}  # fmt: skip
UNLIMITED = {  # these count every order of the event, or every use of each code
    "/admin/orders/events/{event_id}/refund",
    "/admin/orders/events/{event_id}/promo-codes",
}
PLANNED = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")
Statement = tuple[str, tuple[Any, ...]]


@contextmanager
def statements(*, composed: bool) -> Iterator[dict[str, Statement]]:
    """The statements that are executed in the block, by their text; only the composed ones that have a plan, or all."""
    recorded: dict[str, Statement] = {}

    def record(_: Any, __: Any, sql: str, parameters: Any, context: Any, executemany: bool) -> None:
        has_plan = sql.startswith(PLANNED) and not isinstance(context.invoked_statement, TextClause)
        if has_plan or not composed:
            recorded.setdefault(sql, (sql, tuple(parameters[0] if executemany else parameters)))

    event.listen(Engine, "before_cursor_execute", record)
    try:
        yield recorded
    finally:
        event.remove(Engine, "before_cursor_execute", record)


@asynccontextmanager
async def running(service: str, url: str, redis_url: str) -> AsyncIterator[FastAPI]:
    """The service on this database, without its background loops."""
    create_app, settings = SERVICES[service]
    keys = AdminKeys(f"root:admin:{SECRET}")
    app = create_app(settings(postgres_url=url, redis_url=redis_url, admin_keys=keys, log_requests=False))
    with pytest.MonkeyPatch.context() as patch:
        for start in ("every", "keep"):
            patch.setattr(Loops, start, lambda *_, **__: None)
        async with app.router.lifespan_context(app):
            yield app


@pytest.fixture
async def large_database(databases: dict[State, str], engines: Engines) -> AsyncIterator[str]:
    """A copy of the large database."""
    template = databases[LARGE, True].rsplit("/", 1)[1]
    await sql(engines, f"create database plans_reads template {template}")
    yield in_database(engines, "plans_reads")
    await sql(engines, "drop database plans_reads with (force)")


@pytest.mark.parametrize("service", SERVICES)
async def test_the_cost_of_a_composed_statement_depends_on_the_rows_it_returns(
    service: str, large_database: str, databases: dict[State, str], redis_url: str
) -> None:
    executed: dict[str, Statement] = {}
    async with running(service, large_database, redis_url) as app:
        for path in paths(app):
            with statements(composed=True) as recorded:
                await read(app, path)
            executed |= {f"{path}: {sql}": each for sql, each in recorded.items() if path not in UNLIMITED}
        with statements(composed=True) as recorded:
            await LOOPS[service](app)
        executed |= {f"a loop: {sql}": each for sql, each in recorded.items()}
    assert executed
    excessive = {name: why for name, each in executed.items() if (why := await excess(databases, service, each))}
    assert not excessive


def paths(app: FastAPI) -> list[str]:
    """The paths of all GET endpoints but those of one order, which read that order's rows by its key."""
    gets = [path for path, methods in app.openapi()["paths"].items() if "get" in methods and not path.endswith("z")]
    return [path for path in gets if "{reference}" not in path]


async def read(app: FastAPI, path: str) -> httpx.Response:
    transport = httpx.ASGITransport(public(app), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://plans") as client:
        answer = await client.get(path.format(**PATH_VALUES), headers={"authorization": f"Bearer {SECRET}"})
    assert answer.status_code < 500, (path, answer.text)
    return answer


async def orders_loops(app: FastAPI) -> None:
    state = app.state.deps
    await request_next_batch(state.store)
    await state.prices.rules("e")
    await app.state.parts[WebhookDispatcher].forget()


async def inventory_loops(app: FastAPI) -> None:
    state = app.state.deps
    await state.catalogue.refresh()
    await state.expiry_worker.scan()


async def queue_loops(app: FastAPI) -> None:
    await app.state.deps.rooms.refresh()


LOOPS = {"inventory": inventory_loops, "orders": orders_loops, "queue": queue_loops}


async def excess(databases: dict[State, str], service: str, statement: Statement) -> str | None:
    """The cost, if it exceeds the limits for the rows that the statement returns."""
    sql, values = statement
    for analyzed in (False, True):
        cost = await measure(databases[LARGE, analyzed], sql, values)
        if not cost.is_allowed(max(1, cost.returned)):
            return f"{'analyzed' if analyzed else 'not analyzed'}: {cost}"
    return None


DEEP = 1_000  # rows from the end of the list
PAGES_MAX, EXAMINED_MAX = 1_200, 3_000  # of a page of fifty orders with all their parts
ENDPOINT = "ep_0000000000000001"
NEWEST_COMMAND = """
    SELECT c.command_id::text FROM orders.checkout_command c JOIN orders."order" o USING (reference)
    ORDER BY o.created_at, o.reference, c.place"""
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


@pytest.mark.parametrize(("service", "path", "backwards"), LISTS, ids=[path for _, path, _ in LISTS])
async def test_a_deep_page_costs_what_the_first_costs(
    service: str, path: str, backwards: str, databases: dict[State, str], redis_url: str
) -> None:
    url = databases[LARGE, True]
    query = {"after" if path.endswith("/charges") else "before": await deep_cursor(url, backwards), "page_size": 50}
    async with running(service, url, redis_url) as app:
        with statements(composed=False) as executed:
            answer = await read(app, str(httpx.URL(path).copy_merge_params(query)))
    assert answer.status_code == 200, answer.text
    assert answer.json()["next"] or "lane" in path
    for text, values in executed.values():
        cost = await measure(url, text, values)
        assert max(cost.pages / PAGES_MAX, cost.examined / EXAMINED_MAX) <= 1, f"{cost}: {text}"


async def deep_cursor(url: str, backwards: str) -> str | int:
    connection = await asyncpg.connect(with_driver(url))
    cursor: str | int = await connection.fetchval(f"{backwards} OFFSET {DEEP} LIMIT 1")
    await connection.close()
    return cursor
