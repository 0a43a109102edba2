"""The queue's client for places at or below the head: status, claim, leave and release, in batches.

A status is cached for a second, so that twenty tabs of one fan cost one request.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

from cachetools import TTLCache

from services.gateway.settings import Settings
from services.gateway.tuning import DEFAULTS
from shared.concurrency.coalescing import KeyedBatches
from shared.contracts.queue import (
    BATCH_MAX,
    Claimed,
    Extended,
    PlaceRef,
    PlacesQuestion,
    PlaceState,
    PlaceStatus,
    QueueClient,
)
from shared.security.tokens import Pass, QueueToken

STATUS_TTL_S = 1.0
ENDED_STATES: frozenset[PlaceState] = frozenset({"completed", "expired", "left"})
Answer = TypeVar("Answer")


class Epoch(NamedTuple):
    """One event in one epoch: the key of a batch."""

    event_id: str
    epoch: int


class PlaceClient:
    """Requests about places, batched per event and epoch."""

    def __init__(self, queue: QueueClient, settings: Settings) -> None:
        async def statuses(question: PlacesQuestion) -> list[PlaceStatus]:
            return (await queue.status(question)).places

        async def claims(question: PlacesQuestion) -> list[Claimed]:
            return (await queue.claim(question)).claims

        async def extensions(question: PlacesQuestion) -> list[Extended]:
            return (await queue.extend(question)).extensions

        async def leaves(question: PlacesQuestion) -> list[PlaceState]:
            return (await queue.leave(question)).places

        async def releases(question: PlacesQuestion) -> list[PlaceState]:
            return (await queue.release(question)).places

        waiting_max = DEFAULTS.pending_requests_max
        self._statuses = _batches(statuses, "gateway.status", waiting_max)
        self._claims = _batches(claims, "gateway.claims", waiting_max)
        self._extensions = _batches(extensions, "gateway.extensions", waiting_max)
        self._leaves = _batches(leaves, "gateway.leaves", waiting_max)
        self._releases = _batches(releases, "gateway.releases", waiting_max)
        self._cached: TTLCache[tuple[str, int, int, int], PlaceStatus] = TTLCache(
            settings.cache_entries_max, STATUS_TTL_S
        )

    def cached_status(self, token: QueueToken) -> PlaceStatus | None:
        """The status if it was requested within the last second."""
        return self._cached.get(_place(token))

    async def status(self, token: QueueToken) -> PlaceStatus:
        """Raises `StaleEpoch`, `Unavailable`, `Overloaded`."""
        status = self._cached[_place(token)] = await _submit(self._statuses, token)
        return status

    async def claim(self, token: QueueToken) -> Claimed:
        """The pass, or the place's state. Raises `StaleEpoch`, `RoomClosed`, `SoldOut`, `Unavailable`."""
        claimed = await _submit(self._claims, token)
        if claimed.word == "admitted" or claimed.word in ENDED_STATES:  # who waits may be called now
            known = PlaceStatus(status=claimed.word, until_ms=claimed.expires_at_ms, why=claimed.why)
            self._cached[_place(token)] = known
        return claimed

    async def extend(self, token: QueueToken) -> Extended:
        """More time for the session. Raises `StaleEpoch`, `Unavailable`, `Overloaded`."""
        extended = await _submit(self._extensions, token)
        self._cached.pop(_place(token), None)
        return extended

    async def leave(self, token: QueueToken) -> None:
        """Ends the place; leaving twice is leaving once. Raises `StaleEpoch`, `Unavailable`, `Overloaded`."""
        self._cached[_place(token)] = PlaceStatus(status=await _submit(self._leaves, token))

    async def release(self, admission: Pass) -> PlaceState:
        """Releases the slot of a pass; releasing twice is releasing once. Raises `StaleEpoch`, `Unavailable`."""
        return await _submit(self._releases, admission)

    async def close(self) -> None:
        for batches in (self._statuses, self._claims, self._extensions, self._leaves, self._releases):
            await batches.close()


def _batches(
    request: Callable[[PlacesQuestion], Awaitable[Sequence[Answer]]], name: str, waiting_max: int
) -> KeyedBatches[Epoch, PlaceRef, Answer]:
    async def work(key: Epoch, places: list[PlaceRef]) -> Sequence[Answer]:
        return await request(PlacesQuestion(event_id=key.event_id, epoch=key.epoch, places=places))

    return KeyedBatches(work, name=name, batch_max=BATCH_MAX, waiting_max=waiting_max)


async def _submit(batches: KeyedBatches[Epoch, PlaceRef, Answer], of: QueueToken | Pass) -> Answer:
    place = PlaceRef(lane=of.lane, join_seq=of.join_seq, holder=of.holder)
    return await batches.submit(Epoch(of.event_id, of.epoch), place)


def _place(token: QueueToken) -> tuple[str, int, int, int]:
    return token.event_id, token.epoch, token.lane, token.join_seq
