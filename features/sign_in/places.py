"""Finds the places of signed-in fans: asks the queue in batches by the fan's id, and caches a place for a second.

Two devices of one fan, served by two processes, find the same place: it belongs to the fan, not to the device. So the
absence of a place is never cached, as the fan may be joining elsewhere, and a place only for a moment.
"""

import time
from typing import NamedTuple

from cachetools import TTLCache

from shared.concurrency.coalescing import KeyedBatches
from shared.contracts.queue import BATCH_MAX, HoldersQuestion, PlaceFound, QueueClient
from shared.errors.problems import NotInQueue
from shared.security.tokens import QueueToken

CACHE_TTL_S = 1.0
WAITING_MAX = 8_192  # fans of one event that may wait for the queue


class _Line(NamedTuple):
    """An event and the oldest epoch accepted."""

    event_id: str
    epoch_min: int


class UserPlaces:
    """The places of signed-in fans, as queue tokens that the fans need not carry."""

    def __init__(self, queue: QueueClient, service: str, cache_entries_max: int) -> None:
        self._queue = queue
        self._batches: KeyedBatches[_Line, str, QueueToken | None] = KeyedBatches(
            self._fetch, name=f"{service}.users", batch_max=BATCH_MAX, waiting_max=WAITING_MAX
        )
        self._cache: TTLCache[tuple[str, str], QueueToken] = TTLCache(cache_entries_max, CACHE_TTL_S)

    async def place(self, event_id: str, holder: str, *, epoch_min: int = 0) -> QueueToken:
        """Raises `NotInQueue`, `UnknownEvent`, `Unavailable`, `Overloaded`."""
        cached = self._cache.get((event_id, holder))
        if cached is not None and cached.epoch >= epoch_min:
            return cached
        place = await self._batches.submit(_Line(event_id, epoch_min), holder)
        if place is None:
            raise NotInQueue
        self.remember(place)
        return place

    def remember(self, place: QueueToken) -> None:
        """Caches a place, also one that this process just gave the fan."""
        self._cache[place.event_id, place.holder] = place

    async def _fetch(self, line: _Line, holders: list[str]) -> list[QueueToken | None]:
        unique = list(dict.fromkeys(holders))
        question = HoldersQuestion(event_id=line.event_id, epoch_min=line.epoch_min, holders=unique)
        answer = await self._queue.find(question)
        found = dict(zip(unique, answer.places, strict=True))
        return [_token(line.event_id, answer.epoch, holder, found[holder]) for holder in holders]

    async def close(self) -> None:
        await self._batches.close()


def _token(event_id: str, epoch: int, holder: str, found: PlaceFound | None) -> QueueToken | None:
    if found is None:
        return None
    return QueueToken(
        event_id=event_id, epoch=epoch, lane=found.lane, join_seq=found.join_seq, holder=holder,
        issued_at_s=int(time.time()),
    )  # fmt: skip
