"""Isolation levels: a service with another level than READ COMMITTED does not start and is not ready."""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from services.inventory.settings import Settings
from shared.postgres.isolation import WrongIsolation, require_read_committed
from shared.redis.client import Redis
from shared.runtime.preconditions import Preconditions
from tests.inventory.conftest import start


def connect(url: str, level: str) -> AsyncEngine:
    return create_async_engine(url, connect_args={"server_settings": {"default_transaction_isolation": level}})


@pytest.fixture
async def repeatable(postgres_url: str) -> AsyncIterator[AsyncEngine]:
    db = connect(postgres_url, "repeatable read")
    yield db
    await db.dispose()


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
async def test_another_isolation_level_is_refused_with_a_clear_message(postgres_url: str, level: str) -> None:
    db = connect(postgres_url, level)
    with pytest.raises(WrongIsolation, match=f"{level.upper()}; it needs READ COMMITTED"):
        await require_read_committed(db)
    await db.dispose()


async def test_inventory_does_not_start_with_another_isolation_level(
    settings: Settings, repeatable: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.inventory.app.postgres_engine.connect", lambda *_, **__: repeatable)
    with pytest.raises(WrongIsolation):
        await anext(start(settings))


async def test_a_service_with_another_isolation_level_is_not_ready(
    settings: Settings, repeatable: AsyncEngine, redis: Redis
) -> None:
    with pytest.raises(WrongIsolation):
        await Preconditions("inventory", settings, repeatable, redis).checks()["postgres"]()
