"""Outages of Redis and PostgreSQL: every error that means they cannot serve is an outage, answered with 503."""

import io
import logging
from collections.abc import AsyncIterator

import asyncpg
import orjson
import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from onsale.local.engines import with_driver
from shared.errors.outages import is_outage
from shared.postgres import engine as postgres_engine
from shared.postgres.engine import AsyncEngine, fenced
from shared.postgres.settings import PostgresSettings
from shared.redis.client import REDIS_AWAY, Redis, RedisUnable, connect
from shared.runtime.logging import json_lines
from tests.support.bare_service import bare_service, fan_of_service
from tests.support.engines.engines import run_in_thread

pytestmark = pytest.mark.usefixtures("own_database")

SET_BY_SCRIPT = "return redis.call('SET', 'x', 'y')"


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[Redis]:
    async with connect(redis_url) as opened:
        yield opened
        await opened.config_set("maxmemory", "0")
        await opened.execute_command("REPLICAOF", "NO", "ONE")


@pytest.fixture
async def db(postgres_url: str) -> AsyncIterator[AsyncEngine]:
    opened = postgres_engine.connect(PostgresSettings(postgres_url=postgres_url), name="outages")
    yield opened
    await opened.dispose()


async def test_redis_without_memory_is_an_outage_and_an_existing_group_is_not(client: Redis) -> None:
    await client.xgroup_create("s", "g", mkstream=True)
    with pytest.raises(Exception, match="BUSYGROUP") as known:
        await client.xgroup_create("s", "g")
    assert not isinstance(known.value, REDIS_AWAY)
    await client.config_set("maxmemory", "1")
    for write in (lambda: client.set("x", "y"), lambda: client.eval(SET_BY_SCRIPT, 0)):
        with pytest.raises(RedisUnable) as full:
            await write()
        assert isinstance(full.value, REDIS_AWAY)
    pipe = client.pipeline(transaction=False)
    pipe.get("x")
    pipe.set("x", "y")
    with pytest.raises(RedisUnable):
        await pipe.execute(raise_on_error=False)
    assert await client.get("x") is None, "no answer of the failed pipeline is left in the connection"


async def test_redis_that_became_a_replica_is_an_outage(client: Redis) -> None:
    await client.execute_command("REPLICAOF", "127.0.0.1", "1")
    with pytest.raises(RedisUnable):
        await client.eval(SET_BY_SCRIPT, 0)


async def test_a_transaction_replaces_a_connection_that_an_admin_terminated(db: AsyncEngine, postgres_url: str) -> None:
    async with fenced(db, "BEGIN") as driver:
        assert await driver.fetchval("SELECT 1") == 1
        pid = driver.get_server_pid()

    async def terminate() -> None:
        admin = await asyncpg.connect(with_driver(postgres_url))
        await admin.fetchval("SELECT pg_terminate_backend($1, 5000)", pid)
        await admin.close()

    run_in_thread(terminate())  # this loop is blocked meanwhile and has not noticed
    async with fenced(db, "BEGIN") as driver:
        assert await driver.fetchval("SELECT 1") == 1


async def test_a_full_disk_is_an_outage(db: AsyncEngine) -> None:
    full = "DO $$ BEGIN RAISE EXCEPTION 'No space left on device' USING ERRCODE = '53100'; END $$"
    with pytest.raises(OperationalError):
        async with db.begin() as connection:
            await connection.execute(text(full))


OUTAGES = [
    asyncpg.DiskFullError("No space left on device"),
    asyncpg.AdminShutdownError("terminating connection"),
    asyncpg.InternalClientError("cannot switch to state 12; another operation (2) is in progress"),
    RedisUnable("command not allowed when used memory > 'maxmemory'"),
    OSError("reset"),
]


@pytest.mark.parametrize("error", OUTAGES, ids=lambda error: type(error).__name__)
async def test_an_outage_is_answered_503_and_logged_in_one_line(error: Exception) -> None:
    app = bare_service()

    @app.get("/x")
    async def fail() -> None:
        raise error

    async with fan_of_service(app) as fan:
        answer = await fan.get("/x")
    assert (answer.status_code, answer.headers["retry-after"], answer.json()["type"]) == (
        503,
        "1",
        "/problems/unavailable",
    )
    line = logged(error)
    assert "exception" not in line
    assert line["error"].startswith(type(error).__name__)


def test_a_bug_keeps_its_traceback() -> None:
    assert not is_outage(ValueError("a bug"))
    assert "Traceback" in logged(ValueError("a bug"))["exception"]


def logged(error: Exception) -> dict[str, str]:
    """The log line of a failure."""
    log, output = logging.getLogger("x"), io.StringIO()
    handler = logging.StreamHandler(output)
    handler.setFormatter(json_lines())
    log.addHandler(handler)
    try:
        raise error
    except Exception:
        log.exception("loop.failed")
    finally:
        log.removeHandler(handler)
    return dict(orjson.loads(output.getvalue()))


@pytest.mark.parametrize(("column", "value"), [("text", "a\x00b"), ("integer", 2**31), ("bigint", -(2**63) - 1)])
async def test_a_value_that_cannot_be_stored_is_the_senders_error(db: AsyncEngine, column: str, value: object) -> None:
    app = bare_service()

    @app.get("/")
    async def read() -> None:
        async with db.connect() as connection:
            await connection.execute(text(f"SELECT CAST(:value AS {column})"), {"value": value})

    async with fan_of_service(app) as client:
        answer = await client.get("/")
    assert (answer.status_code, answer.json()["type"]) == (422, "/problems/invalid-request")
