"""Start-up checks and readiness of a service with tables: its schema, its PostgreSQL and its Redis.

What is unreachable at the start is left to `/readyz`; what is configured wrongly stops the start.

Transactions must run in READ COMMITTED: each statement sees what was committed before its locks were granted. Under
REPEATABLE READ a statement that waited for a lock continues with a snapshot from before it, so the fence of a rebuilt
Redis stock, a customer's limit and the count of available places would all be read out of date.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from sqlalchemy import text

from shared.errors.database import WrongDatabase
from shared.postgres.engine import DB_AWAY, AsyncEngine
from shared.postgres.schema_version import SchemaCheck
from shared.process.settings import ServiceSettings
from shared.redis.client import REDIS_AWAY, Redis, primaries
from shared.redis.config_check import RedisRequirements
from shared.runtime.metrics import DATABASE_LOCK_WAITING, REDIS_MEMORY, REDIS_MEMORY_LIMIT

REQUIRED = "read committed"


class WrongIsolation(WrongDatabase):
    """Transactions of this service would not see what was committed before their locks."""


async def check_isolation_at_start(db: AsyncEngine) -> None:
    """Raises `WrongIsolation`. A database that is away cannot be checked yet; `/readyz` checks it later."""
    with suppress(*DB_AWAY):
        await require_read_committed(db)


async def require_read_committed(db: AsyncEngine) -> None:
    """Raises `WrongIsolation` if SQLAlchemy's transactions, or those begun on the driver, run in another mode."""
    async with db.begin() as connection:
        modes = [
            str((await connection.exec_driver_sql(f"SHOW {name}")).scalar_one())
            for name in ("transaction_isolation", "default_transaction_isolation")
        ]
    wrong_mode = next((mode for mode in modes if mode != REQUIRED), None)
    if wrong_mode is not None:
        raise WrongIsolation(
            f"PostgreSQL runs this service's transactions in {wrong_mode.upper()}; it needs {REQUIRED.upper()}. "
            "Look for default_transaction_isolation in the address, the pooler or the role."
        )


class Preconditions:
    """The checks of one service."""

    def __init__(self, service: str, settings: ServiceSettings, db: AsyncEngine, redis: Redis) -> None:
        self._db, self.schema = db, SchemaCheck(db, service)
        self._redis_requirements = RedisRequirements(redis, production=settings.environment != "development")

    async def require(self) -> None:
        """Raises `WrongDatabase` or `RedisUnfit` if a check fails; passes while a database is unreachable."""
        await self.schema.check_at_start()
        await check_isolation_at_start(self._db)
        await self._redis_requirements.at_start()

    def checks(self) -> dict[str, Callable[[], Awaitable[object]]]:
        """The checks by name, for `/readyz`."""
        return {
            "postgres": partial(require_read_committed, self._db),
            "redis": self._redis_requirements.check,
            "schema": self.schema.require,
        }


REFRESH_S = 10.0
LOCK_WAITING = text(
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = :application"
)


async def refresh_engine_gauges(service: str, db: AsyncEngine, redis: Redis) -> None:
    """Reads both once. While one is away its gauge stays as it was."""
    with suppress(*DB_AWAY):
        async with db.connect() as connection:
            waiting = await connection.scalar(LOCK_WAITING, {"application": f"onsale-{service}"})
        DATABASE_LOCK_WAITING.labels(service).set(waiting)
    with suppress(*REDIS_AWAY):
        for node in await primaries(redis):
            where = node.connection_pool.connection_kwargs
            name, memory = f"{where.get('host')}:{where.get('port')}", await node.info("memory")
            REDIS_MEMORY.labels(name).set(memory["used_memory"])
            REDIS_MEMORY_LIMIT.labels(name).set(memory["maxmemory"])
