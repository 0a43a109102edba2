"""No statement that a service puts together in the code reads more than it answers, however much there is.

Everything that can be read of a service is read once, from tables of fifty thousand rows; each statement that the code
put together meanwhile is tried again, on tables that were counted and on those that never were.
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
from services.orders.refunds.event_refunds import EventRefunds
from services.orders.settings import Settings as OrdersSettings
from services.queue.app import create_app as queue
from services.queue.settings import Settings
from shared.runtime.background import Loops
from shared.security.auth import AdminKeys
from shared.web.app import public
from tests.plans.case import ids
from tests.plans.conftest import LARGE, State
from tests.plans.touched import LOOKS_A_ROW, LOOKS_BESIDES, PAGES_A_ROW, PAGES_BESIDES, touched
from tests.support.engines.engines import in_database, sql

SECRET = "an admin's secret for tests only"
SERVICES: dict[str, tuple[Callable[..., FastAPI], type[Any]]] = {
    "inventory": (inventory, InventorySettings), "orders": (orders, OrdersSettings), "queue": (queue, Settings),
}  # fmt: skip
NAMED = {
    "event_id": "e", "endpoint_id": "1", "code": "code1", "ticket_id": "t6", "section_id": "S1", "what": "seats",
    "reservation_id": ids(1, 1)[0], "allotment_id": "a1",
}  # fmt: skip
ABOUT_ALL = {  # what these count is every order of the event, every use of each code, or every code
    "/admin/orders/events/{event_id}/refund",
    "/admin/orders/events/{event_id}/promo-codes",
    "/admin/queue/events/{event_id}/codes",
}
PLANNED = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")
Statement = tuple[str, tuple[Any, ...]]


@contextmanager
def core_statements() -> Iterator[dict[str, Statement]]:
    """What was put together meanwhile, by its text."""
    heard: dict[str, Statement] = {}

    def hear(_: Any, __: Any, said: str, parameters: Any, context: Any, many: bool) -> None:
        if said.startswith(PLANNED) and not isinstance(context.invoked_statement, TextClause):
            heard.setdefault(said, (said, tuple(parameters[0] if many else parameters)))

    event.listen(Engine, "before_cursor_execute", hear)
    try:
        yield heard
    finally:
        event.remove(Engine, "before_cursor_execute", hear)


@pytest.fixture
async def crowded(filled: dict[State, str], engines: Engines) -> AsyncIterator[str]:
    """A database of its own with much in it."""
    template = filled[LARGE, True].rsplit("/", 1)[1]
    await sql(engines, f"create database plans_reads template {template}")
    yield in_database(engines, "plans_reads")
    await sql(engines, "drop database plans_reads with (force)")


@pytest.mark.parametrize("service", SERVICES)
async def test_what_a_read_touches_follows_from_what_it_answers(
    service: str, crowded: str, filled: dict[State, str], redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Loops, "every", lambda *_, **__: None)
    monkeypatch.setattr(Loops, "keep", lambda *_, **__: None)
    create_app, settings = SERVICES[service]
    keys = AdminKeys(f"root:admin:{SECRET}")
    app = create_app(settings(postgres_url=crowded, redis_url=redis_url, admin_keys=keys, log_requests=False))
    seen: dict[str, Statement] = {}
    async with app.router.lifespan_context(app):
        for path in paths(app):
            with core_statements() as heard:
                await read(app, path)
            seen |= {f"{path}: {said}": each for said, each in heard.items() if path not in ABOUT_ALL}
        with core_statements() as heard:
            await TURNS[service](app)
        seen |= {f"a turn: {said}": each for said, each in heard.items()}
    assert seen
    far = {name: why for name, each in seen.items() if (why := await too_far(filled, service, each))}
    assert not far


def paths(app: FastAPI) -> list[str]:
    """Every list, export and sum that is answered to a GET; what names one order reads that order's rows by its key."""
    gets = [path for path, calls in app.openapi()["paths"].items() if "get" in calls and not path.endswith("z")]
    return [path for path in gets if "{reference}" not in path]


async def read(app: FastAPI, path: str) -> None:
    """As an operator."""
    transport = httpx.ASGITransport(public(app), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://plans") as client:
        answer = await client.get(path.format(**NAMED), headers={"authorization": f"Bearer {SECRET}"})
    assert answer.status_code < 500, (path, answer.text)


async def orders_turns(app: FastAPI) -> None:
    """What the loops read. Recently changed orders are found by a BRIN index, which covers old rows only after a
    vacuum: the republished frames are left out.
    """
    room = app.state.deps
    await EventRefunds(room.db).run_once()
    await room.background_share.refresh()
    await room.webhook_dispatcher.forget()


async def inventory_turns(app: FastAPI) -> None:
    """As `orders_turns`."""
    room = app.state.deps
    await room.catalogue.refresh()
    await room.expiry_worker.scan()


async def queue_turns(app: FastAPI) -> None:
    """As `orders_turns`."""
    await app.state.deps.rooms.refresh()


TURNS = {"inventory": inventory_turns, "orders": orders_turns, "queue": queue_turns}


async def too_far(filled: dict[State, str], service: str, statement: Statement) -> str | None:
    """How much it touched, if that is more than what it answers is worth."""
    said, values = statement
    for counted in (False, True):
        pages, looks, answered = await touched(filled[LARGE, counted], service, said, values)
        rows = max(1, answered)
        if pages > PAGES_A_ROW * rows + PAGES_BESIDES or looks > LOOKS_A_ROW * rows + LOOKS_BESIDES:
            return f"{'counted' if counted else 'not counted'}: {pages} pages, {looks} looks for {rows} rows"
    return None
