"""What a service with tables stands on: its ledger and its engine. Looked at before it starts, asked by readiness."""

from collections.abc import Awaitable, Callable

from sqlalchemy.ext.asyncio import AsyncEngine

from shared.postgres.isolation import refuse_wrong_database, require_read_committed
from shared.postgres.schema_version import SchemaCheck
from shared.redis.client import Redis
from shared.redis.config_check import RedisRequirements
from shared.runtime.settings import ServiceSettings


class Preconditions:
    """What is away at the start is waited for by readiness; what is wrong is refused."""

    def __init__(self, service: str, settings: ServiceSettings, db: AsyncEngine, redis: Redis) -> None:
        self._db, self.schema = db, SchemaCheck(db, service)
        self._fitness = RedisRequirements(redis, production=settings.environment == "production")

    async def refuse_unfit(self) -> None:
        """Raises `WrongDatabase`, `RedisUnfit`."""
        await self.schema.refuse_older()
        await refuse_wrong_database(self._db)
        await self._fitness.at_start()

    def checks(self) -> dict[str, Callable[[], Awaitable[object]]]:
        """For `/readyz`."""
        return {"postgres": self._ledger, "redis": self._fitness.check, "schema": self.schema.require}

    async def _ledger(self) -> None:
        await require_read_committed(self._db)
