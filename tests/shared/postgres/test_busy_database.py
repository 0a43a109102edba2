"""A busy PostgreSQL: a fan gets 503 with a short Retry-After; a wrong statement stays an internal error."""

from collections.abc import AsyncIterator

import httpx
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from shared.postgres import engine as postgres_engine
from shared.postgres.settings import PostgresSettings, Waits
from tests.support.bare_service import bare_service, fan_of_service

pytestmark = pytest.mark.usefixtures("own_database")

SLOW, LOCKED, WRONG = "SELECT pg_sleep(5)", "LOCK TABLE queue.room", "SELECT nonsense"


@pytest.fixture
async def db(postgres_url: str) -> AsyncIterator[AsyncEngine]:
    settings = PostgresSettings(postgres_url=postgres_url, postgres_pool_max=1)
    waits = Waits(pool_wait_s=0.2, statement_timeout_ms=200, lock_timeout_ms=100)
    opened = postgres_engine.connect(settings, name="test", waits=waits)
    yield opened
    await opened.dispose()


@pytest.fixture
async def fan(db: AsyncEngine) -> AsyncIterator[httpx.AsyncClient]:
    app = bare_service()

    @app.get("/statements/{statement}")
    async def execute(statement: str) -> None:
        async with db.begin() as connection:
            await connection.execute(text({"slow": SLOW, "locked": LOCKED, "wrong": WRONG}[statement]))

    async with fan_of_service(app) as client:
        yield client


async def is_unavailable(fan: httpx.AsyncClient, statement: str) -> bool:
    answer = await fan.get(f"/statements/{statement}")
    return (answer.status_code, answer.headers.get("retry-after")) == (503, "1")


async def test_a_pool_without_a_free_connection_is_503(db: AsyncEngine, fan: httpx.AsyncClient) -> None:
    async with db.connect():
        assert await is_unavailable(fan, "wrong")
    assert (await fan.get("/statements/wrong")).status_code == 500


async def test_a_statement_that_takes_too_long_is_503(fan: httpx.AsyncClient) -> None:
    assert await is_unavailable(fan, "slow")


async def test_a_lock_that_takes_too_long_is_503(fan: httpx.AsyncClient, postgres: AsyncEngine) -> None:
    async with postgres.begin() as other:
        await other.execute(text(LOCKED))
        assert await is_unavailable(fan, "locked")


async def test_a_database_without_a_server_for_writes_is_503(
    fan: httpx.AsyncClient, postgres: AsyncEngine, postgres_url: str
) -> None:
    name = postgres_url.rpartition("/")[2]
    async with postgres.connect() as connection:
        await connection.execute(text(f"ALTER DATABASE {name} SET default_transaction_read_only = on"))
        await connection.commit()
    assert await is_unavailable(fan, "slow")
