"""Whose turn it is, by the queue: a fan who is ready gets a pass on the way, whoever is not is told so for a second.

Many fans are one question; asking again gives the same pass, so the call is claimed once however many requests come.
"""

import time
from collections import OrderedDict
from typing import NamedTuple

from shared.batches import Batches
from shared.contracts.queue import Claimed, PlaceRef, PlacesQuestion, QueueClient
from shared.problems import NotCalled, PlaceEnded
from shared.tokens import QueueToken

REFUSED_S, ADMITTED_S = 1.0, 10.0
RETRY_AFTER_S = 2
ENDED = frozenset({"completed", "expired", "left"})


class _Epoch(NamedTuple):
    """One event in one epoch: places of different epochs are never asked about together."""

    event_id: str
    epoch: int


class Turns:
    """The queue's word on places, batched and remembered for a moment."""

    def __init__(self, queue: QueueClient, *, waiting_max: int, remembered_max: int) -> None:
        self._queue, self._remembered_max = queue, remembered_max
        self._batches: Batches[_Epoch, PlaceRef, Claimed] = Batches(
            self._ask, name="inventory.claims", waiting_max=waiting_max
        )
        self._remembered: OrderedDict[tuple[str, int, int, int], tuple[float, Claimed]] = OrderedDict()

    async def claim(self, place: QueueToken) -> Claimed:
        """The pass of this place. Raises `NotCalled`, `PlaceEnded`, `StaleEpoch`, `Unavailable`, `Overloaded`."""
        key = place[:4]
        until_s, claimed = self._remembered.get(key, (0.0, None))
        if claimed is None or time.monotonic() >= until_s:
            ref = PlaceRef(lane=place.lane, join_seq=place.join_seq, holder=place.holder)
            claimed = await self._batches.submit(_Epoch(place.event_id, place.epoch), ref)
            self._remember(key, claimed)
        if claimed.word in ENDED:
            raise PlaceEnded(f"This place has ended: {claimed.word}. You may join again.", place=claimed.word)
        if claimed.admission is None:
            raise NotCalled(retry_after_s=RETRY_AFTER_S)
        return claimed

    def _remember(self, key: tuple[str, int, int, int], claimed: Claimed) -> None:
        lasts_s = REFUSED_S if claimed.admission is None else ADMITTED_S
        self._remembered[key] = time.monotonic() + lasts_s, claimed
        self._remembered.move_to_end(key)
        if len(self._remembered) > self._remembered_max:
            self._remembered.popitem(last=False)

    async def _ask(self, key: _Epoch, places: list[PlaceRef]) -> list[Claimed]:
        wanted = {(ref.lane, ref.join_seq, ref.holder): ref for ref in places}
        question = PlacesQuestion(event_id=key.event_id, epoch=key.epoch, places=list(wanted.values()))
        answer = await self._queue.claim(question)
        claims = dict(zip(wanted, answer.claims, strict=True))
        return [claims[ref.lane, ref.join_seq, ref.holder] for ref in places]

    async def close(self) -> None:
        await self._batches.close()
