"""Where signed-in fans stand: asked from the queue in batches by the name we gave them, and remembered for a moment.

Two devices of one fan, on two processes, find the same place: it is the fan's, not the device's. So nobody remembers
that there is none, as the fan may be joining elsewhere, and a place no longer than a fan would notice.
"""

import time
from collections import OrderedDict
from typing import NamedTuple

from shared.contracts.queue import HoldersQuestion, PlaceFound, QueueClient
from shared.runtime.keyed_batches import Batches
from shared.security.tokens import QueueToken
from shared.web.problems import NotInQueue

REMEMBERED_S = 1.0
REMEMBERED_MAX = 65_536


class _Line(NamedTuple):
    """An event and the oldest epoch an answer may be of."""

    event_id: str
    epoch_min: int


class UserPlaces:
    """The places of signed-in fans, as tokens that nobody had to carry."""

    def __init__(
        self, queue: QueueClient, *, name: str, waiting_max: int, cache_entries_max: int = REMEMBERED_MAX
    ) -> None:
        self._queue, self._remembered_max = queue, cache_entries_max
        self._batches: Batches[_Line, str, QueueToken | None] = Batches(
            self._ask, name=f"{name}.users", waiting_max=waiting_max
        )
        self._remembered: OrderedDict[tuple[str, str], tuple[float, QueueToken]] = OrderedDict()

    async def place(self, event_id: str, holder: str, *, epoch_min: int = 0) -> QueueToken:
        """Raises `NotInQueue`, `UnknownEvent`, `Unavailable`, `Overloaded`."""
        until_s, remembered = self._remembered.get((event_id, holder), (0.0, None))
        if remembered is not None and time.monotonic() < until_s and remembered.epoch >= epoch_min:
            return remembered
        place = await self._batches.submit(_Line(event_id, epoch_min), holder)
        if place is None:
            raise NotInQueue
        self._remember(event_id, holder, place)
        return place

    def took(self, place: QueueToken) -> None:
        """This process just gave the fan this place."""
        self._remember(place.event_id, place.holder, place)

    def _remember(self, event_id: str, holder: str, place: QueueToken) -> None:
        self._remembered[event_id, holder] = time.monotonic() + REMEMBERED_S, place
        self._remembered.move_to_end((event_id, holder))
        if len(self._remembered) > self._remembered_max:
            self._remembered.popitem(last=False)

    async def _ask(self, line: _Line, holders: list[str]) -> list[QueueToken | None]:
        wanted = list(dict.fromkeys(holders))
        question = HoldersQuestion(event_id=line.event_id, epoch_min=line.epoch_min, holders=wanted)
        answer = await self._queue.find(question)
        found = dict(zip(wanted, answer.places, strict=True))
        return [_token(line.event_id, answer.epoch, holder, found[holder]) for holder in holders]

    async def close(self) -> None:
        await self._batches.close()


def _token(event_id: str, epoch: int, holder: str, found: PlaceFound | None) -> QueueToken | None:
    if found is None:
        return None
    return QueueToken(event_id, epoch, found.lane, found.join_seq, holder, int(time.time()))
