"""A bounded pool of connections to Redis that says how many are in use, and who got none in time."""

from typing import Any
from weakref import WeakSet

from redis.asyncio import BlockingConnectionPool
from redis.exceptions import ConnectionError as RedisConnectionError

from shared.runtime.metrics import POOL_IN_USE, POOL_SIZE, POOL_TIMEOUTS

_pools: dict[str, "WeakSet[MeasuredPool]"] = {}


class MeasuredPool(BlockingConnectionPool):  # type: ignore[misc]
    """While all connections are in use, a caller waits for one. `measure` names the service whose pool it is."""

    service = ""

    def measure(self, service: str) -> None:
        """Counts this pool among those of `service`; a cluster has one for each process."""
        self.service = service
        if service not in _pools:
            pools = _pools[service] = WeakSet()
            POOL_SIZE.labels(service, "redis").set_function(lambda: sum(pool.max_connections for pool in pools))
            POOL_IN_USE.labels(service, "redis").set_function(lambda: sum(pool.in_use for pool in pools))
            POOL_TIMEOUTS.labels(service, "redis")
        _pools[service].add(self)

    @property
    def in_use(self) -> int:
        return len(self._in_use_connections)

    async def get_connection(self, *args: Any, **options: Any) -> Any:
        try:
            return await super().get_connection(*args, **options)
        except RedisConnectionError:
            if self.service and not self.can_get_connection():
                POOL_TIMEOUTS.labels(self.service, "redis").inc()
            raise
