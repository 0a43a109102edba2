"""Isolation levels: a service with another level than READ COMMITTED does not start and is not ready."""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from services.inventory.settings import Settings
from shared.process.preconditions import Preconditions, WrongIsolation
from shared.redis.client import Redis
from tests.inventory.conftest import start

LEVEL = "repeatable read"


@pytest.fixture
async def repeatable(postgres_url: str) -> AsyncIterator[AsyncEngine]:
    settings = {"server_settings": {"default_transaction_isolation": LEVEL}}
    db = create_async_engine(postgres_url, connect_args=settings)
    yield db
    await db.dispose()


async def test_inventory_neither_starts_nor_is_ready_with_another_isolation_level(
    settings: Settings, repeatable: AsyncEngine, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(WrongIsolation, match=f"{LEVEL.upper()}; it needs READ COMMITTED"):
        await Preconditions("inventory", settings, repeatable, redis).checks()["postgres"]()
    monkeypatch.setattr("services.inventory.app.postgres_engine.connect", lambda *_, **__: repeatable)
    with pytest.raises(WrongIsolation):
        await anext(start(settings))
