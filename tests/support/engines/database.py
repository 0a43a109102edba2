"""The database of a test process: migrated once, emptied after each test, with connection pools that stay open.

To copy a database, to open ten connections and to prepare every statement again took nine tenths of a short test.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from shared.postgres import engine as postgres_engine
from shared.postgres.engine import PLANNER
from shared.postgres.settings import WAITS, PostgresSettings, Waits

POOL_MAX = PostgresSettings.model_fields["postgres_pool_max"].default
PREPARE = """
CREATE SCHEMA test;
DO $$
DECLARE one record; rows bigint; deleting text := ''; restoring text := '';
BEGIN
    FOR one IN
        SELECT format('%I.%I', schemaname, tablename) AS name, 'seed_' || row_number() OVER () AS seed FROM pg_tables
        WHERE schemaname NOT IN ('pg_catalog', 'information_schema', 'test') AND tablename <> 'alembic_version'
    LOOP
        deleting := deleting || format('DELETE FROM %s;', one.name);
        EXECUTE format('SELECT count(*) FROM %s', one.name) INTO rows;
        IF rows > 0 THEN
            EXECUTE format('CREATE TABLE test.%I AS SELECT * FROM %s', one.seed, one.name);
            restoring := restoring
                || format('INSERT INTO %s OVERRIDING SYSTEM VALUE SELECT * FROM test.%I;', one.name, one.seed);
        END IF;
    END LOOP;
    EXECUTE format($f$
        CREATE FUNCTION test.empty() RETURNS void LANGUAGE plpgsql SET session_replication_role = replica AS $b$
        BEGIN %s
            PERFORM setval(format('%%I.%%I', schemaname, sequencename)::regclass, start_value, false) FROM pg_sequences;
        END $b$ $f$, deleting || restoring);
END $$;
CREATE FUNCTION test.refuse_version() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE 'a test that changes the version of a schema needs the fixture "own_database"'; END $$;
DO $$
DECLARE one record;
BEGIN
    FOR one IN SELECT schemaname FROM pg_tables WHERE tablename = 'alembic_version' LOOP
        EXECUTE format('CREATE TRIGGER refuse BEFORE INSERT OR UPDATE OR DELETE ON %I.alembic_version '
            'EXECUTE FUNCTION test.refuse_version()', one.schemaname);
    END LOOP;
END $$;
CREATE FUNCTION test.refuse() RETURNS event_trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE 'a test that changes the schema needs the fixture "own_database"'; END $$;
CREATE EVENT TRIGGER refuse ON ddl_command_start EXECUTE FUNCTION test.refuse();
"""
SETTINGS_OF_DATABASE = """
SELECT setconfig FROM pg_db_role_setting
WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


class KeptEngine(AsyncEngine):
    """A connection pool that stays open when the service that asked for it closes it."""

    async def dispose(self, close: bool = True) -> None:
        pass


def connect_for_tests(url: str) -> AsyncEngine:
    """Connections that plan as the suite's do: a plan that was kept from an empty table hangs on a full one."""
    return create_async_engine(url, pool_size=POOL_MAX, connect_args={"server_settings": PLANNER})


class Database:
    """`url` is the SQLAlchemy URL; `db` are connections of the tests themselves."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.db = KeptEngine(connect_for_tests(url).sync_engine)
        self._pools: dict[tuple[str, Waits], KeptEngine] = {}
        self._loop = asyncio.get_running_loop()

    def connect(self, settings: PostgresSettings, *, name: str, waits: Waits = WAITS) -> AsyncEngine:
        """Stands in for `shared.postgres.engine.connect` in services that tests start with default limits."""
        kept = settings.postgres_pool_max == POOL_MAX and settings.postgres_url == self.url
        if not kept or asyncio.get_running_loop() is not self._loop:
            return connect_anew(settings, name=name, waits=waits)
        if (name, waits) not in self._pools:
            self._pools[name, waits] = KeptEngine(connect_anew(settings, name=name, waits=waits).sync_engine)
        return self._pools[name, waits]

    async def empty(self) -> None:
        """Deletes every row that the migrations did not write. Fails if the test has kept a connection."""
        kept = [name for (name, _), pool in self._pools.items() if pool.sync_engine.pool.checkedout()]  # type: ignore[attr-defined]
        async with self.db.begin() as connection:
            await connection.exec_driver_sql("SET LOCAL lock_timeout = '10s'")
            await connection.exec_driver_sql("SELECT test.empty()")
        assert not kept, f"the test has not given back connections of {kept}"

    async def close(self) -> None:
        async with self.db.connect() as connection:
            settings = (await connection.exec_driver_sql(SETTINGS_OF_DATABASE)).all()
        assert not settings, f"a test that sets {settings} for its database needs the fixture 'own_database'"
        for pool in (self.db, *self._pools.values()):
            await AsyncEngine.dispose(pool)


connect_anew = postgres_engine.connect


@asynccontextmanager
async def kept_database(url: str) -> AsyncIterator[Database]:
    """A database that was just copied from the migrated one. Services of this event loop share its pools."""
    database = Database(url)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postgres_engine, "connect", database.connect)
        async with database.db.begin() as connection:
            driver = (await connection.get_raw_connection()).driver_connection
            assert driver is not None
            await driver.execute(PREPARE)
        yield database
    await database.close()
