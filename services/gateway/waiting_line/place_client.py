"""Places at or below the head, where arithmetic ends: their status, their pass, their leaving, asked in batches.

A status is remembered for a second, so that twenty tabs of one fan are one question.
"""

import time
from collections import OrderedDict
from typing import NamedTuple

from shared.contracts.queue import (
    Claimed,
    PlaceRef,
    PlacesQuestion,
    PlaceState,
    PlaceStatus,
    QueueClient,
)
from shared.runtime.keyed_batches import Batches
from shared.security.tokens import Pass, QueueToken

REMEMBERED_S = 1.0
ENDED: frozenset[PlaceState] = frozenset({"completed", "expired", "left"})


class Epoch(NamedTuple):
    """One event in one epoch: places of different epochs are never asked about together."""

    event_id: str
    epoch: int


class PlaceClient:
    """The queue's word on places, batched per event and epoch."""

    def __init__(self, queue: QueueClient, *, waiting_max: int, cache_entries_max: int) -> None:
        self._queue = queue
        self._statuses: Batches[Epoch, PlaceRef, PlaceStatus] = Batches(
            self._ask_status, name="gateway.status", waiting_max=waiting_max
        )
        self._claims: Batches[Epoch, PlaceRef, Claimed] = Batches(
            self._ask_claim, name="gateway.claims", waiting_max=waiting_max
        )
        self._leaves: Batches[Epoch, PlaceRef, PlaceState] = Batches(
            self._ask_leave, name="gateway.leaves", waiting_max=waiting_max
        )
        self._releases: Batches[Epoch, PlaceRef, PlaceState] = Batches(
            self._ask_release, name="gateway.releases", waiting_max=waiting_max
        )
        self._remembered: OrderedDict[tuple[Epoch, int, int], tuple[float, PlaceStatus]] = OrderedDict()
        self._remembered_max = cache_entries_max

    def remembered(self, token: QueueToken) -> PlaceStatus | None:
        """The status if it was asked within the last second."""
        found = self._remembered.get(_key(token))
        return found[1] if found is not None and time.monotonic() < found[0] else None

    async def status(self, token: QueueToken) -> PlaceStatus:
        """Raises `StaleEpoch`, `Unavailable`, `Overloaded`."""
        status = await self._statuses.submit(_epoch(token), _ref(token))
        self._remember(token, status)
        return status

    async def claim(self, token: QueueToken) -> Claimed:
        """The pass, or the state that says why not. Raises `StaleEpoch`, `RoomClosed`, `SoldOut`, `Unavailable`."""
        claimed = await self._claims.submit(_epoch(token), _ref(token))
        self._remember(token, PlaceStatus(status=claimed.word, until_ms=claimed.expires_at_ms, why=claimed.why))
        return claimed

    async def leave(self, token: QueueToken) -> None:
        """Raises `StaleEpoch`, `Unavailable`. Leaving twice is leaving once."""
        state = await self._leaves.submit(_epoch(token), _ref(token))
        self._remember(token, PlaceStatus(status=state))

    async def release(self, admission: Pass) -> PlaceState:
        """Gives the slot of a pass back. Raises `StaleEpoch`, `Unavailable`. Twice is once."""
        place = PlaceRef(lane=admission.lane, join_seq=admission.join_seq, holder=admission.holder)
        return await self._releases.submit(Epoch(admission.event_id, admission.epoch), place)

    def _remember(self, token: QueueToken, status: PlaceStatus) -> None:
        key = _key(token)
        self._remembered[key] = time.monotonic() + REMEMBERED_S, status
        self._remembered.move_to_end(key)
        if len(self._remembered) > self._remembered_max:
            self._remembered.popitem(last=False)

    async def _ask_status(self, key: Epoch, places: list[PlaceRef]) -> list[PlaceStatus]:
        return (await self._queue.status(_question(key, places))).places

    async def _ask_claim(self, key: Epoch, places: list[PlaceRef]) -> list[Claimed]:
        return (await self._queue.claim(_question(key, places))).claims

    async def _ask_leave(self, key: Epoch, places: list[PlaceRef]) -> list[PlaceState]:
        return (await self._queue.leave(_question(key, places))).places

    async def _ask_release(self, key: Epoch, places: list[PlaceRef]) -> list[PlaceState]:
        return (await self._queue.release(_question(key, places))).places

    async def close(self) -> None:
        for batches in (self._statuses, self._claims, self._leaves, self._releases):
            await batches.close()


def _epoch(token: QueueToken) -> Epoch:
    return Epoch(token.event_id, token.epoch)


def _key(token: QueueToken) -> tuple[Epoch, int, int]:
    return _epoch(token), token.lane, token.join_seq


def _ref(token: QueueToken) -> PlaceRef:
    return PlaceRef(lane=token.lane, join_seq=token.join_seq, holder=token.holder)


def _question(key: Epoch, places: list[PlaceRef]) -> PlacesQuestion:
    return PlacesQuestion(event_id=key.event_id, epoch=key.epoch, places=places)
