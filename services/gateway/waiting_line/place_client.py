"""The queue's client for places at or below the head: status, claim, leave and release, in batches.

A status is cached for a second, so that twenty tabs of one fan cost one request.
"""

from typing import NamedTuple

from cachetools import TTLCache

from shared.concurrency.keyed_batches import KeyedBatches
from shared.contracts.queue import (
    Claimed,
    PlaceRef,
    PlacesQuestion,
    PlaceState,
    PlaceStatus,
    QueueClient,
)
from shared.security.tokens import Pass, QueueToken

STATUS_TTL_S = 1.0
ENDED_STATES: frozenset[PlaceState] = frozenset({"completed", "expired", "left"})


class Epoch(NamedTuple):
    """One event in one epoch: the key of a batch."""

    event_id: str
    epoch: int


class PlaceClient:
    """Requests about places, batched per event and epoch."""

    def __init__(self, queue: QueueClient, *, waiting_max: int, cache_entries_max: int) -> None:
        self._queue = queue
        self._statuses: KeyedBatches[Epoch, PlaceRef, PlaceStatus] = KeyedBatches(
            self._request_statuses, name="gateway.status", waiting_max=waiting_max
        )
        self._claims: KeyedBatches[Epoch, PlaceRef, Claimed] = KeyedBatches(
            self._request_claims, name="gateway.claims", waiting_max=waiting_max
        )
        self._leaves: KeyedBatches[Epoch, PlaceRef, PlaceState] = KeyedBatches(
            self._request_leaves, name="gateway.leaves", waiting_max=waiting_max
        )
        self._releases: KeyedBatches[Epoch, PlaceRef, PlaceState] = KeyedBatches(
            self._request_releases, name="gateway.releases", waiting_max=waiting_max
        )
        self._cached: TTLCache[tuple[Epoch, int, int], PlaceStatus] = TTLCache(cache_entries_max, STATUS_TTL_S)

    def cached_status(self, token: QueueToken) -> PlaceStatus | None:
        """The status if it was requested within the last second."""
        return self._cached.get(_cache_key(token))

    async def status(self, token: QueueToken) -> PlaceStatus:
        """Raises `StaleEpoch`, `Unavailable`, `Overloaded`."""
        status = await self._statuses.submit(_epoch(token), _place_ref(token))
        self._cache_status(token, status)
        return status

    async def claim(self, token: QueueToken) -> Claimed:
        """The pass, or the place's state. Raises `StaleEpoch`, `RoomClosed`, `SoldOut`, `Unavailable`."""
        claimed = await self._claims.submit(_epoch(token), _place_ref(token))
        self._cache_status(token, PlaceStatus(status=claimed.word, until_ms=claimed.expires_at_ms, why=claimed.why))
        return claimed

    async def leave(self, token: QueueToken) -> None:
        """Ends the place; leaving twice is leaving once. Raises `StaleEpoch`, `Unavailable`, `Overloaded`."""
        state = await self._leaves.submit(_epoch(token), _place_ref(token))
        self._cache_status(token, PlaceStatus(status=state))

    async def release(self, admission: Pass) -> PlaceState:
        """Releases the slot of a pass; releasing twice is releasing once. Raises `StaleEpoch`, `Unavailable`."""
        place = PlaceRef(lane=admission.lane, join_seq=admission.join_seq, holder=admission.holder)
        return await self._releases.submit(Epoch(admission.event_id, admission.epoch), place)

    def _cache_status(self, token: QueueToken, status: PlaceStatus) -> None:
        self._cached[_cache_key(token)] = status

    async def _request_statuses(self, key: Epoch, places: list[PlaceRef]) -> list[PlaceStatus]:
        return (await self._queue.status(_places_question(key, places))).places

    async def _request_claims(self, key: Epoch, places: list[PlaceRef]) -> list[Claimed]:
        return (await self._queue.claim(_places_question(key, places))).claims

    async def _request_leaves(self, key: Epoch, places: list[PlaceRef]) -> list[PlaceState]:
        return (await self._queue.leave(_places_question(key, places))).places

    async def _request_releases(self, key: Epoch, places: list[PlaceRef]) -> list[PlaceState]:
        return (await self._queue.release(_places_question(key, places))).places

    async def close(self) -> None:
        for batches in (self._statuses, self._claims, self._leaves, self._releases):
            await batches.close()


def _epoch(token: QueueToken) -> Epoch:
    return Epoch(token.event_id, token.epoch)


def _cache_key(token: QueueToken) -> tuple[Epoch, int, int]:
    return _epoch(token), token.lane, token.join_seq


def _place_ref(token: QueueToken) -> PlaceRef:
    return PlaceRef(lane=token.lane, join_seq=token.join_seq, holder=token.holder)


def _places_question(key: Epoch, places: list[PlaceRef]) -> PlacesQuestion:
    return PlacesQuestion(event_id=key.event_id, epoch=key.epoch, places=places)
