"""REPEATABLE READ is shown to be wrong, and refused at start."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from services.inventory.catalogue.apply_event_file import apply_event_file
from services.inventory.redis_stock.rebuild import EXCLUSIVE_LOCK
from services.inventory.reservations import repository
from services.inventory.reservations.repository import HoldInsert, WriteOutcome
from services.inventory.reservations.selection import Selection
from services.inventory.settings import Settings
from shared.contracts.event_file import EventFile
from shared.postgres.isolation import WrongIsolation, require_read_committed
from shared.redis.client import Redis
from shared.runtime.preconditions import Preconditions
from tests.inventory.conftest import EVENT, event_file, start
from tests.support.wait import wait_until

WAITERS = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")


def in_mode(url: str, mode: str) -> AsyncEngine:
    return create_async_engine(url, connect_args={"server_settings": {"default_transaction_isolation": mode}})


@pytest.fixture
async def repeatable(postgres_url: str) -> AsyncIterator[AsyncEngine]:
    db = in_mode(postgres_url, "repeatable read")
    yield db
    await db.dispose()


async def behind_the_fence(taking: AsyncEngine, postgres: AsyncEngine) -> WriteOutcome:
    """A hold gated under the old epoch waits at the fence while a rebuild raises it: what the database says to it."""
    await apply_event_file(postgres, EventFile.model_validate(event_file()))
    epoch = "SELECT redis_epoch FROM inventory.event WHERE event_id = :e"
    raised = "UPDATE inventory.event SET redis_epoch = redis_epoch + 1 WHERE event_id = :e"
    async with postgres.begin() as rebuild:
        await rebuild.execute(EXCLUSIVE_LOCK, {"event_id": EVENT})
        old = (await rebuild.execute(text(epoch), {"e": EVENT})).scalar_one()
        selection = Selection((("A", 0, "A-1-1", 5250),), (), 1, 5250)
        take = HoldInsert("r1", "fan", selection, "EUR", 9**14, "print.print")
        writing = asyncio.create_task(repository.write_holds(taking, EVENT, old, [take]))

        async def waits() -> bool:
            async with postgres.connect() as looking:
                return bool(await looking.scalar(WAITERS))

        await wait_until(waits)
        await rebuild.execute(text(raised), {"e": EVENT})
    return (await writing)[0]


async def test_repeatable_read_lets_a_hold_of_an_old_redis_through_the_fence(
    postgres: AsyncEngine, repeatable: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its snapshot is older than the lock it waited for: it writes what a forgotten gate allowed."""
    monkeypatch.setattr(
        repository, "BEGIN_FENCED", repository.BEGIN_FENCED.replace(" ISOLATION LEVEL READ COMMITTED", "")
    )
    assert await behind_the_fence(repeatable, postgres) == "written"


async def test_a_taking_transaction_says_which_isolation_it_wants(
    postgres: AsyncEngine, repeatable: AsyncEngine
) -> None:
    assert await behind_the_fence(repeatable, postgres) == "stale"


async def test_read_committed_refuses_it(postgres: AsyncEngine) -> None:
    assert await behind_the_fence(postgres, postgres) == "stale"


@pytest.mark.parametrize("mode", ["repeatable read", "serializable"])
async def test_another_mode_is_refused_in_one_clear_line(postgres_url: str, mode: str) -> None:
    db = in_mode(postgres_url, mode)
    with pytest.raises(WrongIsolation, match=f"{mode.upper()}; it needs READ COMMITTED"):
        await require_read_committed(db)
    await db.dispose()


async def test_inventory_does_not_start_in_another_mode(
    settings: Settings, repeatable: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.inventory.app.postgres_engine.connect", lambda *_, **__: repeatable)
    with pytest.raises(WrongIsolation):
        await anext(start(settings))


async def test_a_service_in_another_mode_is_not_ready(
    settings: Settings, repeatable: AsyncEngine, redis: Redis
) -> None:
    with pytest.raises(WrongIsolation):
        await Preconditions("inventory", settings, repeatable, redis).checks()["postgres"]()
