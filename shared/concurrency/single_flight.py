"""Single flight: concurrent callers who need the same key share one request."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from shared.concurrency.tasks import stop
from shared.errors.problems import Overloaded

Result = TypeVar("Result")


class SingleFlight(Generic[Result]):
    """At most one request per key, and at most `in_flight_max` in all, are under way."""

    def __init__(self, *, in_flight_max: int | None = None) -> None:
        self._in_flight_max = in_flight_max
        self._tasks: dict[str, asyncio.Task[Result]] = {}

    async def run(self, key: str, request: Callable[[], Coroutine[Any, Any, Result]], *, known: bool = False) -> Result:
        """The result of the request under way for this key, or of a new one. Cancelling a caller does not cancel the
        request. A `known` key, of which there are only so many, is never refused for those that callers invent. Raises
        `Overloaded`, and what the request raises.
        """
        return await asyncio.shield(self.start(key, request, known=known))

    def start(
        self, key: str, request: Callable[[], Coroutine[Any, Any, Result]], *, known: bool = False
    ) -> asyncio.Task[Result]:
        """As `run`, without waiting for the result."""
        task = self._tasks.get(key)
        if task is None:
            if not known and self._in_flight_max is not None and len(self._tasks) >= self._in_flight_max:
                raise Overloaded
            task = self._tasks[key] = asyncio.create_task(request(), name=f"single flight {key}")
            task.add_done_callback(lambda _: self._tasks.pop(key, None))
        return task

    def __len__(self) -> int:
        """How many requests are under way."""
        return len(self._tasks)

    async def close(self) -> None:
        """Cancels all requests."""
        await stop(self._tasks.values())
