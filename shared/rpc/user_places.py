"""Finds the places of signed-in fans: asks the queue in batches by the fan's id, and caches a place for a second.

Two devices of one fan, served by two processes, find the same place: it belongs to the fan, not to the device. So the
absence of a place is never cached, as the fan may be joining elsewhere, and a place only for a moment.
"""

import time
from collections import OrderedDict
from typing import NamedTuple

from shared.contracts.queue import HoldersQuestion, PlaceFound, QueueClient
from shared.runtime.keyed_batches import KeyedBatches
from shared.security.tokens import QueueToken
from shared.web.problems import NotInQueue

CACHE_TTL_S = 1.0
CACHE_ENTRIES_MAX = 65_536


class _Line(NamedTuple):
    """An event and the oldest epoch accepted."""

    event_id: str
    epoch_min: int


class UserPlaces:
    """The places of signed-in fans, as queue tokens that the fans need not carry."""

    def __init__(
        self, queue: QueueClient, *, name: str, waiting_max: int, cache_entries_max: int = CACHE_ENTRIES_MAX
    ) -> None:
        self._queue, self._cache_entries_max = queue, cache_entries_max
        self._batches: KeyedBatches[_Line, str, QueueToken | None] = KeyedBatches(
            self._fetch, name=f"{name}.users", waiting_max=waiting_max
        )
        self._cache: OrderedDict[tuple[str, str], tuple[float, QueueToken]] = OrderedDict()

    async def place(self, event_id: str, holder: str, *, epoch_min: int = 0) -> QueueToken:
        """Raises `NotInQueue`, `UnknownEvent`, `Unavailable`, `Overloaded`."""
        until_s, cached = self._cache.get((event_id, holder), (0.0, None))
        if cached is not None and time.monotonic() < until_s and cached.epoch >= epoch_min:
            return cached
        place = await self._batches.submit(_Line(event_id, epoch_min), holder)
        if place is None:
            raise NotInQueue
        self._store(event_id, holder, place)
        return place

    def remember(self, place: QueueToken) -> None:
        """Caches a place that this process just gave the fan."""
        self._store(place.event_id, place.holder, place)

    def _store(self, event_id: str, holder: str, place: QueueToken) -> None:
        self._cache[event_id, holder] = time.monotonic() + CACHE_TTL_S, place
        self._cache.move_to_end((event_id, holder))
        if len(self._cache) > self._cache_entries_max:
            self._cache.popitem(last=False)

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
