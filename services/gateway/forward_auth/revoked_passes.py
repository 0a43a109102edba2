"""Passes that no longer work although their time is not over: heard on Pub/Sub, and asked for whole at first use, after
every break of the connection, and now and then.
"""

import asyncio
import time

from pydantic import ValidationError

from services.gateway.metrics import FRAMES
from shared.contracts.frames import REVOKED_CHANNELS, Revoked
from shared.contracts.queue import QueueClient
from shared.redis.client import Redis
from shared.redis.pubsub import listen
from shared.web.problems import Problem

ASK_AGAIN_S = 15.0
RETRY_S = 1.0
IN_USE_S = 120.0
EVENTS_MAX = 1000
LEEWAY_MS = 10_000


class _Known:
    """One event's dead passes, each with its end (ms); when to ask for them again."""

    def __init__(self) -> None:
        self.passes: dict[str, int] = {}
        self.ask_at_s = 0.0
        self.used_s = 0.0


class RevokedPasses:
    """What this process knows of dead passes."""

    def __init__(self, redis: Redis, queue: QueueClient) -> None:
        self._redis, self._queue = redis, queue
        self._events: dict[str, _Known] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}

    async def is_dead(self, event_id: str, jti: str) -> bool:
        """Whether this pass was revoked. Asks once per event; a queue that is away leaves what is known."""
        known = self._events.get(event_id)
        if known is None:
            if len(self._events) >= EVENTS_MAX:
                self._events.pop(min(self._events, key=lambda name: self._events[name].used_s))
            known = self._events[event_id] = _Known()
        known.used_s = time.monotonic()
        if not known.ask_at_s:
            await self._ask_once(event_id, known)
        return jti in known.passes

    def take(self, revoked: Revoked) -> None:
        """Passes that died just now."""
        known = self._events.get(revoked.event_id)
        if known is not None:
            known.passes.update(revoked.passes)

    async def _ask_once(self, event_id: str, known: _Known) -> None:
        task = self._asking.get(event_id)
        if task is None:
            task = self._asking[event_id] = asyncio.create_task(self._ask(event_id, known))
            task.add_done_callback(lambda _: self._asking.pop(event_id, None))
        await asyncio.shield(task)

    async def _ask(self, event_id: str, known: _Known) -> None:
        try:
            answer = await self._queue.revoked(event_id)
        except Problem:
            known.ask_at_s = time.monotonic() + RETRY_S
            return
        gone_ms = time.time() * 1000 - LEEWAY_MS
        heard = {jti: until_ms for jti, until_ms in known.passes.items() if until_ms > gone_ms}
        known.passes = {**heard, **dict(answer.passes)}
        known.ask_at_s = time.monotonic() + ASK_AGAIN_S

    async def ask_again(self) -> None:
        """One turn a second: forgets events no longer in use, asks for those whose time has come."""
        now_s = time.monotonic()
        self._events = {name: known for name, known in self._events.items() if now_s - known.used_s < IN_USE_S}
        due = [(name, known) for name, known in self._events.items() if 0 < known.ask_at_s <= now_s]
        for event_id, known in due[:16]:
            await self._ask_once(event_id, known)

    async def listen(self) -> None:
        """Hears of every pass that dies, for ever."""
        await listen(self._redis, REVOKED_CHANNELS, self._hear, begins=self._ask_soon)

    def _ask_soon(self) -> None:
        """What died while nobody heard it is asked for."""
        for known in self._events.values():
            known.ask_at_s = min(known.ask_at_s, time.monotonic())

    def _hear(self, raw: bytes) -> None:
        try:
            self.take(Revoked.model_validate_json(raw))
        except ValidationError:
            FRAMES.labels("unreadable").inc()

    async def close(self) -> None:
        """Ends the questions nobody needs any more."""
        for task in list(self._asking.values()):
            task.cancel()
        await asyncio.gather(*self._asking.values(), return_exceptions=True)
