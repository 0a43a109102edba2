"""A pool of connections to PostgreSQL that says how many are in use, and who got none in time."""

from functools import partial
from weakref import ref

from sqlalchemy import Engine
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import AsyncAdaptedQueuePool, PoolProxiedConnection, QueuePool

from shared.runtime.metrics import POOL_IN_USE, POOL_SIZE, POOL_TIMEOUTS


def measured_pool(service: str) -> type[AsyncAdaptedQueuePool]:
    """The pool of this service; it counts the callers that got no connection in time."""
    timeouts = POOL_TIMEOUTS.labels(service, "postgresql")

    class MeasuredPool(AsyncAdaptedQueuePool):
        """Counts who waited in vain."""

        def connect(self) -> PoolProxiedConnection:
            try:
                return super().connect()
            except PoolTimeout:
                timeouts.inc()
                raise

    return MeasuredPool


def measure(db: Engine, service: str) -> None:
    """Shows the size of the engine's pool and how many connections are in use."""
    pool = db.pool
    POOL_SIZE.labels(service, "postgresql").set(pool.size() if isinstance(pool, QueuePool) else 0)
    POOL_IN_USE.labels(service, "postgresql").set_function(partial(_in_use, ref(db)))


def _in_use(engine: "ref[Engine]") -> int:
    pool = db.pool if (db := engine()) is not None else None
    return pool.checkedout() if isinstance(pool, QueuePool) else 0
