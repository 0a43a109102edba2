"""Hearing what is shown: subscriptions on one connection, or on one for each process of a cluster that shows to shards.

A connection whose other end vanished looks like one on which nothing happens, so a silent one is asked. Whatever breaks
breaks the whole: who listens begins anew, and knows that something was missed.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Self

from shared.redis.client import REDIS_AWAY, Redis, RedisError
from shared.redis.cluster import Cluster
from shared.redis.slot_map import address_of
from shared.redis.url import Address
from shared.runtime.logging import data

log = logging.getLogger("onsale.ears")
READ_S = 1.0
SILENT_PING_S, SILENT_MAX_S = 5.0, 10.0
AGAIN_S = 0.25
WAITING_MAX = 1000
KEPT_OPEN = "show:nothing"  # a connection that has subscribed to something can be asked whether it stands
Message = dict[str, Any]


class Subscription:
    """One connection on which messages are heard."""

    def __init__(self, redis: Redis) -> None:
        self._pubsub = redis.pubsub()
        self._heard_s = 0.0

    async def __aenter__(self) -> Self:
        try:
            await self._pubsub.connect()
        except BaseException:
            await self._pubsub.aclose()
            raise
        self._heard_s = asyncio.get_running_loop().time()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pubsub.aclose()

    async def subscribe(self, *channels: str) -> None:
        await self._pubsub.subscribe(*channels)

    async def psubscribe(self, pattern: str) -> None:
        await self._pubsub.psubscribe(pattern)

    async def ssubscribe(self, *channels: str) -> None:
        for channel in channels:  # each has a slot of its own
            await self._pubsub.ssubscribe(channel)

    async def unsubscribe(self, *channels: str) -> None:
        await self._pubsub.unsubscribe(*channels)

    async def sunsubscribe(self, *channels: str) -> None:
        for channel in channels:
            await self._pubsub.sunsubscribe(channel)

    async def next(self) -> Message | None:
        """A message, those about subscriptions included; nothing after a second without one. Raises `ConnectionError`
        when nobody is at the other end.
        """
        message: Message | None = await self._pubsub.get_message(timeout=READ_S)
        now_s = asyncio.get_running_loop().time()
        if message is not None:
            self._heard_s = now_s
        elif now_s - self._heard_s > SILENT_MAX_S:
            raise ConnectionError("Pub/Sub does not answer")
        elif now_s - self._heard_s > SILENT_PING_S:
            await self._pubsub.ping()
        return message


class ClusterSubscription:
    """Channels of shards are heard where their slot is, everything else from any primary."""

    def __init__(self, cluster: Cluster) -> None:
        self._shards = cluster.shards
        self._ears: dict[Address, tuple[Subscription, asyncio.Task[None]]] = {}
        self._home: Subscription | None = None
        self._heard: asyncio.Queue[Message | Exception] = asyncio.Queue(WAITING_MAX)
        self._opening = asyncio.Lock()

    async def __aenter__(self) -> Self:
        primaries = await self._shards.primaries()
        if not primaries:
            raise ConnectionError("The cluster has no primary")
        try:
            self._home = await self._at(primaries[0])
        except REDIS_AWAY:
            self._shards.doubt()
            raise
        return self

    async def __aexit__(self, *_ended: object) -> None:
        tasks = [task for _, task in self._ears.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for ear, _task in self._ears.values():
            await ear.__aexit__()

    async def _at(self, node: Redis) -> Subscription:
        where = address_of(node)
        async with self._opening:
            if where not in self._ears:
                ear = await Subscription(node).__aenter__()
                self._ears[where] = ear, asyncio.create_task(self._read(ear), name="ear")
                await ear.subscribe(KEPT_OPEN)
        return self._ears[where][0]

    async def _read(self, ear: Subscription) -> None:
        try:
            while True:
                message = await ear.next()
                if message is not None:
                    await self._heard.put(message)
        except Exception as broken:  # noqa: BLE001 - handed to whoever listens
            self._shards.doubt()
            await self._heard.put(broken)

    async def subscribe(self, *channels: str) -> None:
        assert self._home is not None
        await self._home.subscribe(*channels)

    async def psubscribe(self, pattern: str) -> None:
        assert self._home is not None
        await self._home.psubscribe(pattern)

    async def ssubscribe(self, *channels: str) -> None:
        for channel in channels:
            await (await self._at(await self._shards.near(channel))).ssubscribe(channel)

    async def unsubscribe(self, *channels: str) -> None:
        assert self._home is not None
        await self._home.unsubscribe(*channels)

    async def sunsubscribe(self, *channels: str) -> None:
        for channel in channels:
            await (await self._at(await self._shards.near(channel))).sunsubscribe(channel)

    async def next(self) -> Message | None:
        try:
            async with asyncio.timeout(READ_S):
                heard = await self._heard.get()
        except TimeoutError:
            return None
        if isinstance(heard, Exception):
            raise heard
        return heard


def ears(redis: Redis) -> Subscription | ClusterSubscription:
    """To be entered; hears nothing until it has subscribed."""
    return ClusterSubscription(redis) if isinstance(redis, Cluster) else Subscription(redis)


async def listen(
    redis: Redis, pattern: str, take: Callable[[bytes], None], *,
    begins: Callable[[], None] = lambda: None, breaks: Callable[[], None] = lambda: None,
) -> None:  # fmt: skip
    """Hands over every message on channels of this pattern, for ever. `begins` is called whenever it is subscribed,
    once more after a break: between `breaks` and `begins` something may have been missed.
    """
    while True:
        try:
            async with ears(redis) as hearing:
                await hearing.psubscribe(pattern)
                while True:
                    message = await hearing.next()
                    if message is None:
                        continue
                    if message["type"] == "pmessage":
                        take(message["data"])
                    elif message["type"] == "psubscribe":
                        begins()
        except (*REDIS_AWAY, RedisError) as away:
            log.warning("pubsub.away", extra=data(pattern=pattern, error=type(away).__name__))
        finally:
            breaks()
        await asyncio.sleep(AGAIN_S)
