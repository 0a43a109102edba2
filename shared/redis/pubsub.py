"""Pub/Sub subscriptions that notice a dead connection: on one server, or on every shard of a cluster.

A connection whose other end vanished looks like an idle one, so an idle one is pinged. Any failure ends the whole
subscription: the subscriber starts again, and knows that it may have missed messages.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Self

from shared.concurrency.background import stop
from shared.redis.client import REDIS_AWAY, Redis, RedisError
from shared.redis.cluster import Cluster, address_of
from shared.redis.url import Address
from shared.runtime.logging import get_logger

log = get_logger("onsale.pubsub")
ANSWER_WITHIN_S = 5.0  # a silent connection is pinged after this time, and as long later it is dead
RETRY_S = 0.25
WAITING_MAX = 1000
KEEPALIVE_CHANNEL = "show:nothing"  # a connection can be pinged only while it has a subscription
Message = dict[str, Any]


class Subscription:
    """Subscriptions on one connection."""

    def __init__(self, redis: Redis) -> None:
        self._pubsub = redis.pubsub()
        self._pinged = False

    async def __aenter__(self) -> Self:
        try:
            await self._pubsub.connect()
        except BaseException:
            await self._pubsub.aclose()
            raise
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
        """The next message, confirmations of subscriptions included; `None` after `ANSWER_WITHIN_S` without one.

        Raises `ConnectionError` when the other end does not answer pings.
        """
        message: Message | None = await self._pubsub.get_message(timeout=ANSWER_WITHIN_S)
        if message is None:
            if self._pinged:
                raise ConnectionError("Pub/Sub does not answer")
            await self._pubsub.ping()
        self._pinged = message is None
        return message


class ClusterSubscription:
    """Subscriptions on a cluster: sharded channels at the shard of their slot, all others at any primary."""

    _home: Subscription

    def __init__(self, cluster: Cluster) -> None:
        self._shards = cluster.slot_map
        self._by_node: dict[Address, tuple[Subscription, asyncio.Task[None]]] = {}
        self._received: asyncio.Queue[Message | Exception] = asyncio.Queue(WAITING_MAX)
        self._opening = asyncio.Lock()

    async def __aenter__(self) -> Self:
        primaries = await self._shards.primaries()
        if not primaries:
            raise ConnectionError("The cluster has no primary")
        try:
            self._home = await self._subscription_at(primaries[0])
        except REDIS_AWAY:
            self._shards.invalidate()
            raise
        return self

    async def __aexit__(self, *_ended: object) -> None:
        await stop(task for _, task in self._by_node.values())
        for subscription, _task in self._by_node.values():
            await subscription.__aexit__()

    async def _subscription_at(self, node: Redis) -> Subscription:
        where = address_of(node)
        async with self._opening:
            if where not in self._by_node:
                subscription = await Subscription(node).__aenter__()
                self._by_node[where] = subscription, asyncio.create_task(self._read(subscription), name="pubsub")
                await subscription.subscribe(KEEPALIVE_CHANNEL)
        return self._by_node[where][0]

    async def _read(self, subscription: Subscription) -> None:
        try:
            while True:
                message = await subscription.next()
                if message is not None:
                    await self._received.put(message)
        except Exception as broken:  # noqa: BLE001 - raised by `next`
            self._shards.invalidate()
            await self._received.put(broken)

    async def subscribe(self, *channels: str) -> None:
        await self._home.subscribe(*channels)

    async def psubscribe(self, pattern: str) -> None:
        await self._home.psubscribe(pattern)

    async def ssubscribe(self, *channels: str) -> None:
        for channel in channels:
            await (await self._subscription_at(await self._shards.node_for_key(channel))).ssubscribe(channel)

    async def unsubscribe(self, *channels: str) -> None:
        await self._home.unsubscribe(*channels)

    async def sunsubscribe(self, *channels: str) -> None:
        for channel in channels:
            await (await self._subscription_at(await self._shards.node_for_key(channel))).sunsubscribe(channel)

    async def next(self) -> Message | None:
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                message = await self._received.get()
        except TimeoutError:
            return None
        if isinstance(message, Exception):
            raise message
        return message


def open_subscription(redis: Redis) -> Subscription | ClusterSubscription:
    """An async context; it receives nothing before the first `subscribe`."""
    return ClusterSubscription(redis) if isinstance(redis, Cluster) else Subscription(redis)


async def listen(
    redis: Redis, pattern: str, on_message: Callable[[bytes], None], *,
    on_subscribed: Callable[[], None] = lambda: None, on_lost: Callable[[], None] = lambda: None,
) -> None:  # fmt: skip
    """Passes every message on channels of this pattern to `on_message`, for ever.

    `on_subscribed` is called after every subscription, `on_lost` after every loss; messages in between are missed.
    """
    while True:
        try:
            async with open_subscription(redis) as subscription:
                await subscription.psubscribe(pattern)
                while True:
                    message = await subscription.next()
                    if message is None:
                        continue
                    if message["type"] == "pmessage":
                        on_message(message["data"])
                    elif message["type"] == "psubscribe":
                        on_subscribed()
        except (*REDIS_AWAY, RedisError) as away:
            log.warning("pubsub.unavailable", pattern=pattern, error=type(away).__name__)
        finally:
            on_lost()
        await asyncio.sleep(RETRY_S)
