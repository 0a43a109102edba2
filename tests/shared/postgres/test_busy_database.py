"""What a fan hears when the ledger is busy: 503 and when to come back, soon; a bad statement stays our own fault."""

from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from shared.postgres import engine as ledger
from shared.postgres.settings import PostgresSettings
from shared.web.exception_handlers import add_exception_handlers

SLOW, LOCKED, WRONG = "SELECT pg_sleep(5)", "LOCK TABLE queue.room", "SELECT nonsense"


@pytest.fixture
async def db(postgres_url: str) -> AsyncIterator[AsyncEngine]:
    settings = PostgresSettings(
        postgres_url=postgres_url, postgres_pool_max=1, postgres_pool_wait_s=0.2, postgres_statement_timeout_ms=200,
        postgres_lock_timeout_ms=100,
    )  # fmt: skip
    opened = ledger.connect(settings, name="test")
    yield opened
    await opened.dispose()


@pytest.fixture
async def fan(db: AsyncEngine) -> AsyncIterator[httpx.AsyncClient]:
    app = FastAPI()
    add_exception_handlers(app)

    @app.get("/{what}")
    async def ask(what: str) -> None:
        async with db.begin() as connection:
            await connection.execute(text({"slow": SLOW, "locked": LOCKED, "wrong": WRONG}[what]))

    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://fan") as client:
        yield client


async def refused(fan: httpx.AsyncClient, what: str) -> bool:
    answer = await fan.get(f"/{what}")
    return (answer.status_code, answer.headers.get("retry-after")) == (503, "1")


async def test_a_pool_without_a_free_connection_is_503(db: AsyncEngine, fan: httpx.AsyncClient) -> None:
    async with db.connect():
        assert await refused(fan, "wrong")
    assert (await fan.get("/wrong")).status_code == 500


async def test_a_statement_that_takes_too_long_is_503(fan: httpx.AsyncClient) -> None:
    assert await refused(fan, "slow")


async def test_a_row_that_is_somebody_elses_for_too_long_is_503(fan: httpx.AsyncClient, postgres: AsyncEngine) -> None:
    async with postgres.begin() as somebody:
        await somebody.execute(text(LOCKED))
        assert await refused(fan, "locked")


async def test_a_server_that_is_gone_is_503(fan: httpx.AsyncClient, postgres: AsyncEngine, postgres_url: str) -> None:
    name = postgres_url.rpartition("/")[2]
    async with postgres.connect() as operator:
        await operator.execute(text(f"ALTER DATABASE {name} SET default_transaction_read_only = on"))
        await operator.commit()
    assert await refused(fan, "slow")
