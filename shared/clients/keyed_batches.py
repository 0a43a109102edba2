"""Group commits by key: questions of many fans about one event go to the queue service as one call."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from typing import Generic, TypeVar

from cachetools import LRUCache

from shared.concurrency.coalescing import GroupCommit
from shared.contracts.queue import BATCH_MAX

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")
Answer = TypeVar("Answer")
KEYS_MAX = 1_000


class KeyedBatches(Generic[Key, Item, Answer]):
    """One group commit per key, for the `KEYS_MAX` most recently used keys; one that is dropped still finishes."""

    def __init__(
        self,
        work: Callable[[Key, list[Item]], Awaitable[Sequence[Answer | BaseException]]],
        *,
        name: str,
        waiting_max: int,
        in_flight_max: int = 2,
    ) -> None:
        self._work, self._name = work, name
        self._waiting_max, self._in_flight_max = waiting_max, in_flight_max
        self._commits: LRUCache[Key, GroupCommit[Item, Answer]] = LRUCache(KEYS_MAX)

    async def submit(self, key: Key, item: Item) -> Answer:
        """The result for `item`. Raises `Overloaded` at once when too many wait under this key."""
        return await self.enqueue(key, item)

    def enqueue(self, key: Key, item: Item) -> "asyncio.Future[Answer]":
        """As `submit`, for a caller who does not wait in a task."""
        commit = self._commits.get(key)
        if commit is None:
            work = partial(self._work, key)
            commit = self._commits[key] = GroupCommit(
                work, name=self._name, batch_max=BATCH_MAX, waiting_max=self._waiting_max,
                in_flight_max=self._in_flight_max,
            )  # fmt: skip
        return commit.enqueue(item)

    async def close(self) -> None:
        """Finishes what waits and refuses new items."""
        for commit in self._commits.values():
            await commit.close()
