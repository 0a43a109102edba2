"""The revoked passes: those that stopped working before they expire.

They come by Pub/Sub; the whole list is requested at first use, after each break of the connection, and periodically.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from pydantic import ValidationError

from shared.concurrency.background import Quiet
from shared.concurrency.coalescing import SingleFlight
from shared.contracts.frames import REVOKED_CHANNELS, Revoked
from shared.contracts.queue import QueueClient
from shared.errors.problems import Problem
from shared.redis.client import Redis
from shared.redis.pubsub import listen

REFRESH_S = 15.0
RETRY_S = 1.0
IN_USE_S = 120.0
EVENTS_MAX = 1000
LEEWAY_MS = 10_000


@dataclass
class _EventRevocations:
    """One event's revoked passes by `jti`, each with its expiry (ms), and when to fetch the list again."""

    passes: dict[str, int] = field(default_factory=dict)
    fetch_at_s: float = 0.0
    used_s: float = 0.0


class RevokedPasses:
    """Revoked passes of the events in use at this process. Name only events that a verified pass names."""

    def __init__(self, redis: Redis, queue: QueueClient, *, invalid: Callable[[], object] = lambda: None) -> None:
        """`invalid` is called for each message that cannot be read."""
        self._redis, self._queue, self._invalid = redis, queue, invalid
        self._events: dict[str, _EventRevocations] = {}
        self._fetches: SingleFlight[None] = SingleFlight()

    async def is_revoked(self, event_id: str, jti: str) -> bool:
        """Whether this pass was revoked. Fetches the list at first use; while the queue is away, known ones count."""
        event = self._events.get(event_id)
        if event is None:
            if len(self._events) >= EVENTS_MAX:
                self._events.pop(min(self._events, key=lambda name: self._events[name].used_s))
            event = self._events[event_id] = _EventRevocations()
        event.used_s = time.monotonic()
        if not event.fetch_at_s:
            await self._fetch_once(event_id, event)
        return jti in event.passes

    async def _fetch_once(self, event_id: str, event: _EventRevocations) -> None:
        await self._fetches.run(event_id, partial(self._fetch, event_id, event))

    async def _fetch(self, event_id: str, event: _EventRevocations) -> None:
        try:
            answer = await self._queue.revoked(event_id)
        except Problem:
            event.fetch_at_s = time.monotonic() + RETRY_S
            return
        expired_ms = time.time() * 1000 - LEEWAY_MS
        unexpired = {jti: until_ms for jti, until_ms in event.passes.items() if until_ms > expired_ms}
        event.passes = {**unexpired, **dict(answer.passes)}
        event.fetch_at_s = time.monotonic() + REFRESH_S

    async def refresh(self) -> Quiet:
        """Runs once a second: forgets events that are not in use, fetches the lists that are due."""
        now_s = time.monotonic()
        self._events = {name: event for name, event in self._events.items() if now_s - event.used_s < IN_USE_S}
        due = [(name, event) for name, event in self._events.items() if 0 < event.fetch_at_s <= now_s]
        for event_id, event in due[:16]:
            await self._fetch_once(event_id, event)
        return Quiet(0)

    async def listen(self) -> None:
        """Adds every revoked pass that Pub/Sub delivers, for ever."""
        await listen(self._redis, REVOKED_CHANNELS, self._on_message, on_subscribed=self._refresh_soon)

    def _refresh_soon(self) -> None:
        """Makes all lists due: passes may have been revoked while the connection was broken."""
        for event in self._events.values():
            event.fetch_at_s = min(event.fetch_at_s, time.monotonic())

    def _on_message(self, raw: bytes) -> None:
        try:
            revoked = Revoked.model_validate_json(raw)
        except ValidationError:
            self._invalid()
            return
        if event := self._events.get(revoked.event_id):
            event.passes.update(revoked.passes)

    async def close(self) -> None:
        """Cancels pending requests."""
        await self._fetches.close()
