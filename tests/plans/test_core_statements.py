"""The cost of every statement that a service composes with SQLAlchemy Core depends on the rows it returns.

Every GET endpoint and the background loops of a service run once on tables of fifty thousand rows. Each composed
statement that they executed is then measured, on analyzed tables and on tables that never were.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import Engine, TextClause, event

from onsale.local.engines import Engines
from services.inventory.app import create_app as inventory
from services.inventory.settings import Settings as InventorySettings
from services.orders.app import create_app as orders
from services.orders.refunds.event_refunds import request_next_batch
from services.orders.settings import Settings as OrdersSettings
from services.queue.app import create_app as queue
from services.queue.settings import Settings
from shared.concurrency.background import Loops
from shared.security.auth import AdminKeys
from shared.web.app import public
from tests.plans.case import ids
from tests.plans.conftest import LARGE, State
from tests.plans.cost import measure
from tests.support.engines.engines import in_database, sql

SECRET = "an admin's secret for tests only"
SERVICES: dict[str, tuple[Callable[..., FastAPI], type[Any]]] = {
    "inventory": (inventory, InventorySettings), "orders": (orders, OrdersSettings), "queue": (queue, Settings),
}  # fmt: skip
PATH_VALUES = {
    "event_id": "e", "endpoint_id": "ep_0000000000000001", "code": "CODE1", "ticket_id": "t6", "section_id": "S1",
    "what": "seats", "reservation_id": ids(1, 1)[0], "allotment_id": "a1",
}  # fmt: skip
UNLIMITED = {  # these count every order of the event, or every use of each code
    "/admin/orders/events/{event_id}/refund",
    "/admin/orders/events/{event_id}/promo-codes",
}
PLANNED = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")
Statement = tuple[str, tuple[Any, ...]]


@contextmanager
def core_statements() -> Iterator[dict[str, Statement]]:
    """The composed statements that are executed in the block, by their text."""
    recorded: dict[str, Statement] = {}

    def record(_: Any, __: Any, sql: str, parameters: Any, context: Any, executemany: bool) -> None:
        if sql.startswith(PLANNED) and not isinstance(context.invoked_statement, TextClause):
            recorded.setdefault(sql, (sql, tuple(parameters[0] if executemany else parameters)))

    event.listen(Engine, "before_cursor_execute", record)
    try:
        yield recorded
    finally:
        event.remove(Engine, "before_cursor_execute", record)


@pytest.fixture
async def large_database(databases: dict[State, str], engines: Engines) -> AsyncIterator[str]:
    """A copy of the large database."""
    template = databases[LARGE, True].rsplit("/", 1)[1]
    await sql(engines, f"create database plans_reads template {template}")
    yield in_database(engines, "plans_reads")
    await sql(engines, "drop database plans_reads with (force)")


@pytest.mark.parametrize("service", SERVICES)
async def test_the_cost_of_a_composed_statement_depends_on_the_rows_it_returns(
    service: str, large_database: str, databases: dict[State, str], redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Loops, "every", lambda *_, **__: None)
    monkeypatch.setattr(Loops, "keep", lambda *_, **__: None)
    create_app, settings = SERVICES[service]
    keys = AdminKeys(f"root:admin:{SECRET}")
    app = create_app(settings(postgres_url=large_database, redis_url=redis_url, admin_keys=keys, log_requests=False))
    statements: dict[str, Statement] = {}
    async with app.router.lifespan_context(app):
        for path in paths(app):
            with core_statements() as recorded:
                await read(app, path)
            statements |= {f"{path}: {sql}": each for sql, each in recorded.items() if path not in UNLIMITED}
        with core_statements() as recorded:
            await LOOPS[service](app)
        statements |= {f"a loop: {sql}": each for sql, each in recorded.items()}
    assert statements
    excessive = {name: why for name, each in statements.items() if (why := await excess(databases, service, each))}
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
    """Runs the loops once, except the republishing of frames: it finds recently changed orders by a BRIN index, which
    covers old rows only after a vacuum.
    """
    state = app.state.deps
    await request_next_batch(state.db)
    await state.background_share.refresh()
    await state.webhook_dispatcher.forget()


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
