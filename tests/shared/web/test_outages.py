"""What an engine or a ledger that cannot serve looks like to us: away, whatever words it has for it."""

import io
import logging
from collections.abc import AsyncIterator

import asyncpg
import orjson
import pytest
from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from onsale.local.engines import with_driver
from shared.postgres import engine as postgres_engine
from shared.postgres.engine import AsyncEngine
from shared.postgres.fenced_transaction import fenced
from shared.postgres.settings import PostgresSettings
from shared.redis.client import REDIS_AWAY, Redis, RedisUnable, connect
from shared.runtime.logging import JsonLines
from shared.web.exception_handlers import add_exception_handlers
from shared.web.outages import is_outage
from tests.support.engines.engines import run_apart

SET_BY_SCRIPT = "return redis.call('SET', 'x', 'y')"


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[Redis]:
    async with connect(redis_url) as opened:
        yield opened
        await opened.config_set("maxmemory", "0")
        await opened.execute_command("REPLICAOF", "NO", "ONE")


@pytest.fixture
async def ledger(postgres_url: str) -> AsyncIterator[AsyncEngine]:
    db = postgres_engine.connect(PostgresSettings(postgres_url=postgres_url), name="outages")
    yield db
    await db.dispose()


async def test_an_engine_without_memory_is_away_and_groups_that_exist_are_not(client: Redis) -> None:
    await client.xgroup_create("s", "g", mkstream=True)
    with pytest.raises(Exception, match="BUSYGROUP") as known:
        await client.xgroup_create("s", "g")
    assert not isinstance(known.value, REDIS_AWAY)
    await client.config_set("maxmemory", "1")
    for ask in (lambda: client.set("x", "y"), lambda: client.eval(SET_BY_SCRIPT, 0)):
        with pytest.raises(RedisUnable) as full:
            await ask()
        assert isinstance(full.value, REDIS_AWAY)
    pipe = client.pipeline(transaction=False)
    pipe.get("x")
    pipe.set("x", "y")
    with pytest.raises(RedisUnable):
        await pipe.execute(raise_on_error=False)
    assert await client.get("x") is None, "the connection that is used next has nothing of the last one's answers"


async def test_an_engine_that_became_a_replica_is_away(client: Redis) -> None:
    await client.execute_command("REPLICAOF", "127.0.0.1", "1")
    with pytest.raises(RedisUnable):
        await client.eval(SET_BY_SCRIPT, 0)


async def test_a_transaction_begins_though_the_admin_had_ended_its_connection(
    ledger: AsyncEngine, postgres_url: str
) -> None:
    async with fenced(ledger, "BEGIN") as driver:
        assert await driver.fetchval("SELECT 1") == 1
        pid = driver.get_server_pid()

    async def end_it() -> None:
        admin = await asyncpg.connect(with_driver(postgres_url))
        await admin.fetchval("SELECT pg_terminate_backend($1, 5000)", pid)
        await admin.close()

    run_apart(end_it())  # this loop stands still meanwhile, and has not seen it
    async with fenced(ledger, "BEGIN") as driver:
        assert await driver.fetchval("SELECT 1") == 1


async def test_a_disk_that_is_full_is_a_ledger_that_is_away(ledger: AsyncEngine) -> None:
    full = "DO $$ BEGIN RAISE EXCEPTION 'No space left on device' USING ERRCODE = '53100'; END $$"
    with pytest.raises(OperationalError):
        async with ledger.begin() as connection:
            await connection.execute(text(full))


OUTAGES = [
    asyncpg.DiskFullError("No space left on device"),
    asyncpg.AdminShutdownError("terminating connection"),
    asyncpg.InternalClientError("cannot switch to state 12; another operation (2) is in progress"),
    RedisUnable("command not allowed when used memory > 'maxmemory'"),
    OSError("reset"),
]


@pytest.mark.parametrize("failed", OUTAGES, ids=lambda failed: type(failed).__name__)
async def test_a_fan_hears_503_and_the_log_has_one_line(failed: Exception) -> None:
    app = FastAPI()
    add_exception_handlers(app)

    @app.get("/x")
    async def fail() -> None:
        raise failed

    async with AsyncClient(transport=ASGITransport(app), base_url="http://x") as fan:
        answer = await fan.get("/x")
    assert (answer.status_code, answer.headers["retry-after"], answer.json()["type"]) == (
        503,
        "1",
        "/problems/unavailable",
    )
    line = said(failed)
    assert "exception" not in line
    assert line["error"].startswith(type(failed).__name__)


def test_a_bug_keeps_its_traceback() -> None:
    assert not is_outage(ValueError("a bug"))
    assert "Traceback" in said(ValueError("a bug"))["exception"]


def said(failed: Exception) -> dict[str, str]:
    """The line that the log has of a failure."""
    log, written = logging.getLogger("x"), io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(JsonLines())
    log.addHandler(handler)
    try:
        raise failed
    except Exception:
        log.exception("loop.failed")
    finally:
        log.removeHandler(handler)
    return dict(orjson.loads(written.getvalue()))
