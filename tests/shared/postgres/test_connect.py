"""Connections to PostgreSQL: with several servers in one URL, which is used, and what replaces a lost one; of a busy
one, a fan gets 503 with a short Retry-After, while a wrong statement stays an internal error.

A service works on a schema newer than itself, and refuses an older one in one line.
"""

import ast
import asyncio
import importlib
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine

from onsale.local.ports import HOST, free_port
from shared.errors.database import is_busy, is_gone
from shared.errors.problems import Unavailable
from shared.features import package_of
from shared.postgres import engine as postgres_engine
from shared.postgres import schema_version
from shared.postgres.engine import TRIES_MAX, NoServer, Servers, WrongAddress, fenced, hosts, retry_deadlocks
from shared.postgres.migrations import current_revision_at, downgrade, upgrade
from shared.postgres.schema_version import SchemaTooOld, migrations_folder, revisions
from shared.postgres.settings import PostgresSettings, Waits
from shared.routes import SERVICES_WITH_TABLES
from shared.web.app import public
from tests.support.bare_service import bare_service, fan_of_service
from tests.support.wait import wait_until

pytestmark = pytest.mark.usefixtures("own_database")

PID = text("SELECT pg_backend_pid()")
APPLICATION_NAME = "onsale-slow-statement"


@pytest.fixture
async def silent_server() -> AsyncIterator[str]:
    """The address of a server that accepts connections and never answers."""

    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(never_answer, HOST, 0)
    yield f"{HOST}:{server.sockets[0].getsockname()[1]}"
    server.close()


@pytest.fixture
async def db(postgres_url: str) -> AsyncIterator[AsyncEngine]:
    opened = postgres_engine.connect(PostgresSettings(postgres_url=postgres_url, postgres_pool_max=3), name="test")
    yield opened
    await opened.dispose()


def with_servers_before(postgres_url: str, *addresses: str) -> str:
    """The same URL, with other servers before its own."""
    head, _, rest = postgres_url.rpartition("@")
    return f"{head}@{','.join(addresses)},{rest}"


@pytest.mark.parametrize(
    ("url", "servers"),
    [
        ("postgresql://u:p@one/db", [None]),
        ("postgresql://u@one:6000,two/db", [("one", 6000), ("two", 5432)]),
        ("postgresql://[::1]:6000,two:1/db", [("::1", 6000), ("two", 1)]),
        ("postgresql:///db?host=/run/postgresql", [None]),
    ],
)
def test_a_url_names_its_servers(url: str, servers: list[tuple[str, int] | None]) -> None:
    assert hosts(url) == servers


@pytest.mark.parametrize("url", ["nonsense", "redis://one", "postgresql://u@one:x,two/db", "postgresql://u@,two/db"])
def test_an_invalid_url_is_refused_at_start(url: str) -> None:
    with pytest.raises(WrongAddress, match="postgresql://user@"):
        Servers(url, connect_timeout_s=1)


async def test_the_writable_server_is_found_after_a_dead_and_a_silent_one(
    postgres_url: str, silent_server: str
) -> None:
    servers = Servers(with_servers_before(postgres_url, f"{HOST}:{free_port()}", silent_server), connect_timeout_s=0.3)
    (await servers.connect(name="test")).terminate()
    started_s = time.perf_counter()
    (await servers.connect(name="test")).terminate()
    assert time.perf_counter() - started_s < 0.3, "the server of the last connection is tried first"


async def test_a_read_only_server_is_not_used(postgres: AsyncEngine, postgres_url: str) -> None:
    name = postgres_url.rpartition("/")[2]
    async with postgres.connect() as connection:
        await connection.execute(text(f"ALTER DATABASE {name} SET default_transaction_read_only = on"))
        await connection.commit()
    with pytest.raises(NoServer, match="standby or read-only"):
        await Servers(postgres_url, connect_timeout_s=1).connect(name="test")


async def pids(db: AsyncEngine, statement: str = "SELECT 1") -> set[int]:
    """The server process ids of all three connections of the pool, after each has run the statement."""
    async with db.connect() as one, db.connect() as two, db.connect() as three:
        for connection in (one, two, three):
            await connection.execute(text(statement))
            await connection.commit()
        return {(await connection.execute(PID)).scalar_one() for connection in (one, two, three)}


@pytest.mark.parametrize("by_driver", [False, True])
async def test_all_connections_to_a_server_that_turns_read_only_are_replaced(db: AsyncEngine, by_driver: bool) -> None:
    """A standby is read-only, too. Hot statements run on the driver itself, the others through SQLAlchemy."""
    before, write = (
        await pids(db, "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"),
        "CREATE TABLE nothing ()",
    )
    if by_driver:
        with pytest.raises(Unavailable):
            async with fenced(db, "BEGIN") as driver:
                await driver.execute(write)
    else:
        async with db.connect() as connection:
            with pytest.raises(OperationalError, match="read-only transaction"):
                await connection.execute(text(write))
    assert not before & await pids(db)


async def test_cut_connections_are_replaced_before_their_next_use(db: AsyncEngine, postgres: AsyncEngine) -> None:
    before = await pids(db)
    async with postgres.connect() as connection:
        await connection.execute(
            text("SELECT pg_terminate_backend(p) FROM unnest(CAST(:p AS int[])) p"), {"p": list(before)}
        )
        await wait_until(lambda: _all_gone(postgres, before))
    assert not before & await pids(db)


async def _all_gone(postgres: AsyncEngine, pids: set[int]) -> bool:
    async with postgres.connect() as connection:
        count = text("SELECT count(*) FROM pg_stat_activity WHERE pid = ANY(:p)")
        return bool((await connection.execute(count, {"p": list(pids)})).scalar_one() == 0)


async def test_a_client_stops_waiting_for_a_silent_server_but_does_not_cancel_its_statement(
    postgres_url: str, postgres: AsyncEngine
) -> None:
    """Cancelling a commit that waits for its standby would make it visible before it is safe."""
    settings, waits = PostgresSettings(postgres_url=postgres_url), Waits(answer_timeout_s=0.3)
    opened = postgres_engine.connect(settings, name="slow-statement", waits=waits)
    db = opened.execution_options(isolation_level="AUTOCOMMIT")
    async with db.connect() as connection:
        await connection.execute(text("SET statement_timeout = 0"))
        with pytest.raises(OperationalError):
            await connection.execute(text("SELECT pg_sleep(0.8)"))
    active = text(
        f"SELECT count(*) FROM pg_stat_activity WHERE application_name = '{APPLICATION_NAME}' AND state = 'active'"
    )
    async with postgres.connect() as connection:
        assert (await connection.execute(active)).scalar_one() == 1
    await db.dispose()


async def test_a_statement_timeout_is_classified_as_busy_and_a_wrong_statement_is_not(db: AsyncEngine) -> None:
    async with db.begin() as connection:
        await connection.execute(text("SET LOCAL statement_timeout = 10"))
        with pytest.raises(postgres_engine.DBAPIError) as slow:
            await connection.execute(text("SELECT pg_sleep(1)"))
    async with db.connect() as connection:
        with pytest.raises(postgres_engine.DBAPIError) as wrong:
            await connection.execute(text("SELECT nonsense"))
    assert (is_busy(slow.value), is_gone(slow.value)) == (True, False)
    assert (is_busy(wrong.value), is_gone(wrong.value)) == (False, False)


async def test_a_deadlock_is_retried_but_not_for_ever() -> None:
    tries = 0

    async def loses(times: int) -> int:
        nonlocal tries
        tries += 1
        if tries <= times:
            raise asyncpg.DeadlockDetectedError("deadlock detected")
        return tries

    assert await retry_deadlocks(lambda: loses(TRIES_MAX - 1)) == TRIES_MAX
    tries = 0
    with pytest.raises(Unavailable):
        await retry_deadlocks(lambda: loses(TRIES_MAX))


async def test_no_plan_is_kept_while_tables_grow(db: AsyncEngine) -> None:
    """A plan for a hundred rows reads all of fifty thousand (decision 0089)."""
    plans = "SELECT custom_plans AS made, generic_plans AS kept FROM pg_prepared_statements WHERE statement LIKE :mark"
    async with db.connect() as connection:
        for _ in range(10):
            await connection.execute(text("SELECT 1 FROM pg_class WHERE relname = :name"), {"name": "place"})
        found = (await connection.execute(text(plans), {"mark": "SELECT 1 FROM pg_class%"})).one()
    assert (found.made, found.kept) == (10, 0)


SLOW, LOCKED, WRONG = "SELECT pg_sleep(5)", "LOCK TABLE queue.room", "SELECT nonsense"


@pytest.fixture
async def busy_db(postgres_url: str) -> AsyncIterator[AsyncEngine]:
    settings = PostgresSettings(postgres_url=postgres_url, postgres_pool_max=1)
    waits = Waits(pool_wait_s=0.2, statement_timeout_ms=200, lock_timeout_ms=100)
    opened = postgres_engine.connect(settings, name="test", waits=waits)
    yield opened
    await opened.dispose()


@pytest.fixture
async def fan(busy_db: AsyncEngine) -> AsyncIterator[httpx.AsyncClient]:
    app = bare_service()

    @app.get("/statements/{statement}")
    async def execute(statement: str) -> None:
        async with busy_db.begin() as connection:
            await connection.execute(text({"slow": SLOW, "locked": LOCKED, "wrong": WRONG}[statement]))

    async with fan_of_service(app) as client:
        yield client


async def is_unavailable(fan: httpx.AsyncClient, statement: str) -> bool:
    answer = await fan.get(f"/statements/{statement}")
    return (answer.status_code, answer.headers.get("retry-after")) == (503, "1")


async def test_a_pool_without_a_free_connection_is_503(busy_db: AsyncEngine, fan: httpx.AsyncClient) -> None:
    async with busy_db.connect():
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


WHILE_STOPPED = ("orders", "0008_one_row")


def create_app(service: str, monkeypatch: pytest.MonkeyPatch, postgres_url: str, redis_url: str) -> Any:
    monkeypatch.setenv("ONSALE_POSTGRES_URL", postgres_url)
    monkeypatch.setenv("ONSALE_REDIS_URL", redis_url)
    return importlib.import_module(f"{package_of(service)}.app").create_app()


async def readiness(app: Any) -> httpx.Response:
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(public(app)), base_url="http://service"
    ) as load_balancer:
        return await load_balancer.get("/readyz")


async def is_ready(app: Any) -> bool:
    return (await readiness(app)).is_success


@pytest.mark.parametrize("service", SERVICES_WITH_TABLES)
async def test_a_service_refuses_a_schema_older_than_itself(
    service: str, monkeypatch: pytest.MonkeyPatch, postgres_url: str, redis_url: str
) -> None:
    latest = revisions(service)[-1]
    monkeypatch.setattr(schema_version, "revisions", lambda service: (latest, "one more"))
    app = create_app(service, monkeypatch, postgres_url, redis_url)
    with pytest.raises(SchemaTooOld, match=f"schema of {service} is at {latest}.*one more: run `onsale migrate`"):
        async with app.router.lifespan_context(app):
            pass


@pytest.mark.parametrize("service", SERVICES_WITH_TABLES)
async def test_a_service_works_on_a_schema_of_a_later_version(
    service: str, monkeypatch: pytest.MonkeyPatch, postgres: AsyncEngine, postgres_url: str, redis_url: str
) -> None:
    async with postgres.begin() as connection:
        await connection.execute(text(f"UPDATE {service}.alembic_version SET version_num = '2099_01_01_0000'"))
    app = create_app(service, monkeypatch, postgres_url, redis_url)
    async with app.router.lifespan_context(app):
        await wait_until(lambda: is_ready(app))


async def test_readiness_checks_the_schema_of_a_database_that_was_down_at_start(
    monkeypatch: pytest.MonkeyPatch, postgres: AsyncEngine, postgres_url: str, redis_url: str
) -> None:
    app = create_app("queue", monkeypatch, "postgresql+asyncpg://nobody@127.0.0.1:1/nowhere", redis_url)
    async with app.router.lifespan_context(app):
        monkeypatch.setattr(app.state.preconditions.schema, "_db", postgres)
        await downgrade(postgres_url, "queue", "base")
        assert "schema" in (await readiness(app)).json()["failing"]


@pytest.mark.parametrize("service", SERVICES_WITH_TABLES)
def test_revisions_are_those_that_alembic_finds_and_have_one_head(service: str) -> None:
    script = ScriptDirectory(str(migrations_folder(service)))
    assert script.get_heads() == [revisions(service)[-1]]
    assert [each.revision for each in script.walk_revisions()] == list(reversed(revisions(service)))


def test_revisions_follow_each_other_whatever_their_files_are_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "versions").mkdir()
    for file, before, revision in (("a", '"2"', "3"), ("b", '"1"', "2"), ("c", "None", "1")):
        (tmp_path / "versions" / f"{file}.py").write_text(f'revision = "{revision}"\ndown_revision = {before}\n')
    monkeypatch.setattr(schema_version, "migrations_folder", lambda service: tmp_path)
    assert revisions.__wrapped__("queue") == ("1", "2", "3")


@pytest.mark.parametrize(
    ("reached", "is_run"), [(revisions("console")[0], True), (revisions("console")[-1], False), ("2099_later", False)]
)
async def test_alembic_runs_only_where_the_schema_is_not_at_the_last_revision(
    reached: str, is_run: bool, monkeypatch: pytest.MonkeyPatch, postgres: AsyncEngine, postgres_url: str
) -> None:
    async with postgres.begin() as connection:
        await connection.execute(text("UPDATE console.alembic_version SET version_num = :at"), {"at": reached})
    ran: list[str] = []
    monkeypatch.setattr(command, "upgrade", lambda config, revision: ran.append(revision))
    await upgrade(postgres_url, "console")
    assert ran == ["head"] * is_run


async def test_two_runs_create_a_schema_once(postgres: AsyncEngine, postgres_url: str) -> None:
    async with postgres.begin() as connection:
        await connection.execute(text("DROP SCHEMA console CASCADE"))
    await asyncio.gather(upgrade(postgres_url, "console"), upgrade(postgres_url, "console"))
    assert await current_revision_at(postgres_url, "console") == revisions("console")[-1]


async def test_a_schema_without_tables_is_upgraded(postgres: AsyncEngine, postgres_url: str) -> None:
    await downgrade(postgres_url, "queue", "base")
    await upgrade(postgres_url, "queue")
    assert await current_revision_at(postgres_url, "queue") == revisions("queue")[-1]
    async with postgres.connect() as connection:
        assert (await connection.execute(text("SELECT count(*) FROM queue.place"))).scalar() == 0


@pytest.mark.parametrize("service", SERVICES_WITH_TABLES)
def test_a_migration_removes_nothing_that_the_release_before_uses(service: str) -> None:
    """Unused tables and columns are removed one release later, by a migration whose name ends in `_contract`. For the
    one to one row an order all processes of orders are stopped.
    """
    for path in sorted((migrations_folder(service) / "versions").glob("*.*")):
        if not path.stem.endswith("_contract") and (service, path.stem) != WHILE_STOPPED:
            removal = re.search(
                r"drop_column|drop_table|rename_table|alter_column|DROP (TABLE|COLUMN)", upgrade_code(path)
            )
            assert removal is None, f"{path.name}: {removal}"


def upgrade_code(path: Path) -> str:
    """The part of a migration's file that an upgrade runs: all but `downgrade`."""
    if path.suffix == ".sql":
        return path.read_text()
    functions = (node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef))
    return "\n".join(ast.unparse(function) for function in functions if function.name != "downgrade")
