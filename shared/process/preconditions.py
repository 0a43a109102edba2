"""Start-up checks and readiness of a service with tables: its schema, its PostgreSQL and its Redis.

What is unreachable at the start is left to `/readyz`; what is configured wrongly stops the start.
"""

from collections.abc import Awaitable, Callable
from functools import partial

from sqlalchemy.ext.asyncio import AsyncEngine

from shared.postgres.isolation import check_isolation_at_start, require_read_committed
from shared.postgres.schema_version import SchemaCheck
from shared.process.settings import ServiceSettings
from shared.redis.client import Redis
from shared.redis.config_check import RedisRequirements


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
