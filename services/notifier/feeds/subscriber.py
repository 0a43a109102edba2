"""The inbox: frames from Pub/Sub, of those channels only that somebody here listens to.

So the engine is the routing table: a process hears nothing of events it has no listeners for. Where frames are shown
in shards, channels of events are subscribed to there. When any of it breaks, `connected` turns false, and `generation`
tells a later connection from an earlier: what was shown in between was missed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from shared.contracts.frames import keeps_log
from shared.redis.client import REDIS_AWAY, Redis, RedisError
from shared.redis.pubsub import ClusterSubscription, Subscription, ears
from shared.runtime.logging import data

log = logging.getLogger("onsale.notifier")
RECONNECT_S = 0.25
CONFIRM_S = 1.0


class Subscriber:
    """`follow` and `unfollow` channels; each message on one of them goes to `hear(channel, payload)`."""

    def __init__(
        self, redis: Redis, hear: Callable[[str, bytes], None], *, sharded: Callable[[], Awaitable[bool]]
    ) -> None:
        self._redis = redis
        self._hear = hear
        self._ask_whether_sharded, self._sharded = sharded, False
        self._confirmed: dict[str, asyncio.Event] = {}
        self._ears: Subscription | ClusterSubscription | None = None
        self.generation = 0

    @property
    def connected(self) -> bool:
        return self._ears is not None

    async def check(self) -> None:
        """Raises unless the engine was reached once: without it streams go on, but a process must begin whole."""
        if self.generation == 0:
            raise ConnectionError("Pub/Sub was not reached yet")

    async def follow(self, *channels: str) -> int:
        """From the answer on nothing shown on these channels is missed while this generation lasts; 0 while away."""
        new = [channel for channel in channels if channel not in self._confirmed]
        self._confirmed.update((channel, asyncio.Event()) for channel in new)
        if self._ears is None:
            return 0
        generation = self.generation
        try:
            if new:
                await self._subscribe(self._ears, new)
            async with asyncio.timeout(CONFIRM_S):
                for channel in channels:
                    await self._confirmed[channel].wait()
        except (*REDIS_AWAY, TimeoutError, KeyError):
            return 0
        return generation

    async def unfollow(self, *channels: str) -> None:
        """Nobody listens to these any more."""
        for channel in channels:
            self._confirmed.pop(channel, None)
        if self._ears is not None:
            with suppress(*REDIS_AWAY):  # the reader notices by itself
                plain, shards = self._apart(channels)
                if plain:
                    await self._ears.unsubscribe(*plain)
                if shards:
                    await self._ears.sunsubscribe(*shards)

    async def listen(self) -> None:
        """Reads until the connection breaks, then pauses; whoever keeps this running calls it again."""
        try:
            async with ears(self._redis) as hearing:
                self._sharded = await self._ask_whether_sharded()
                known = list(self._confirmed)
                if known:  # only who may subscribe is connected
                    await self._subscribe(hearing, known)
                    await self._read(hearing)
                self._ears, self.generation = hearing, self.generation + 1
                if new := [channel for channel in self._confirmed if channel not in known]:
                    await self._subscribe(hearing, new)
                while True:
                    await self._read(hearing)
        except (*REDIS_AWAY, RedisError) as away:
            log.warning("pubsub.away", extra=data(error=type(away).__name__, words=str(away)))
        finally:
            self._ears = None
            for confirmed in self._confirmed.values():
                confirmed.clear()
        await asyncio.sleep(RECONNECT_S)

    def _apart(self, channels: Iterable[str]) -> tuple[list[str], list[str]]:
        """Those to be heard the plain way, and those in shards."""
        shards = [channel for channel in channels if self._sharded and keeps_log(channel)]
        return [channel for channel in channels if channel not in shards], shards

    async def _subscribe(self, hearing: Subscription | ClusterSubscription, channels: Iterable[str]) -> None:
        plain, shards = self._apart(channels)
        if plain:
            await hearing.subscribe(*plain)
        if shards:
            await hearing.ssubscribe(*shards)

    async def _read(self, hearing: Subscription | ClusterSubscription) -> None:
        message = await hearing.next()
        if message is None:
            return
        kind, channel = message["type"], (message["channel"] or b"").decode()
        if kind in {"message", "smessage"}:
            self._hear(channel, message["data"])
        elif kind in {"subscribe", "ssubscribe"} and channel in self._confirmed:
            self._confirmed[channel].set()
        elif kind in {"unsubscribe", "sunsubscribe"} and channel in self._confirmed:
            await self._subscribe(hearing, [channel])  # somebody came while the last was leaving
