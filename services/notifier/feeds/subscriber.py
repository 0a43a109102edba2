"""The Pub/Sub subscriber: receives messages of the channels that have listeners in this process.

Redis is therefore the routing table: a process gets no messages of events it has no listeners for. With sharded
Pub/Sub, channels of events are subscribed on their shards. When a connection breaks, `connected` turns false; each new
connection has a higher `generation`, and messages between two generations were missed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress

from shared.contracts.frames import keeps_log
from shared.redis.client import REDIS_AWAY, Redis, RedisError
from shared.redis.pubsub import ClusterSubscription, Subscription, open_subscription
from shared.runtime.logging import get_logger

log = get_logger("onsale.notifier")
RECONNECT_S = 0.25
CONFIRM_S = 1.0


class Subscriber:
    """Subscribes to channels and passes each message to `on_message(channel, payload)`."""

    def __init__(
        self, redis: Redis, on_message: Callable[[str, bytes], None], *, sharded: Callable[[], Awaitable[bool]]
    ) -> None:
        self._redis = redis
        self._on_message = on_message
        self._is_sharded, self._sharded = sharded, False
        self._confirmed: dict[str, asyncio.Event] = {}
        self._connection: Subscription | ClusterSubscription | None = None
        self.generation = 0

    @property
    def connected(self) -> bool:
        return self._connection is not None

    async def check(self) -> None:
        """Raises `ConnectionError` until Redis was reached once; later outages do not stop streams."""
        if self.generation == 0:
            raise ConnectionError("Redis Pub/Sub was not reached yet")

    async def subscribe(self, *channels: str) -> int:
        """Returns the generation in which no message on these channels is missed from now on; 0 while away."""
        new_channels = [channel for channel in channels if channel not in self._confirmed]
        self._confirmed.update((channel, asyncio.Event()) for channel in new_channels)
        if self._connection is None:
            return 0
        generation = self.generation
        try:
            if new_channels:
                await self._send(self._connection, "subscribe", new_channels)
            async with asyncio.timeout(CONFIRM_S):
                for channel in channels:
                    await self._confirmed[channel].wait()
        except (*REDIS_AWAY, TimeoutError, KeyError):
            return 0
        return generation

    async def unsubscribe(self, *channels: str) -> None:
        """Ends the subscriptions of channels without listeners."""
        for channel in channels:
            self._confirmed.pop(channel, None)
        if self._connection is not None:
            with suppress(*REDIS_AWAY):  # `listen` notices the broken connection
                await self._send(self._connection, "unsubscribe", channels)

    async def listen(self) -> None:
        """Reads messages until the connection breaks, then waits a moment; the caller runs it again."""
        try:
            async with open_subscription(self._redis) as connection:
                self._sharded = await self._is_sharded()
                confirmed_channels = list(self._confirmed)
                if confirmed_channels:  # a connection that may not subscribe does not count as connected
                    await self._send(connection, "subscribe", confirmed_channels)
                    await self._read(connection)
                self._connection, self.generation = connection, self.generation + 1
                if new_channels := [channel for channel in self._confirmed if channel not in confirmed_channels]:
                    await self._send(connection, "subscribe", new_channels)
                while True:
                    await self._read(connection)
        except (*REDIS_AWAY, RedisError) as away:
            log.warning("pubsub.unavailable", error=type(away).__name__, detail=str(away))
        finally:
            self._connection = None
            for confirmed in self._confirmed.values():
                confirmed.clear()
        await asyncio.sleep(RECONNECT_S)

    async def _send(
        self, connection: Subscription | ClusterSubscription, command: str, channels: Collection[str]
    ) -> None:
        """Subscribes or unsubscribes, by plain or by sharded Pub/Sub."""
        sharded_channels = [channel for channel in channels if self._sharded and keeps_log(channel)]
        plain = [channel for channel in channels if channel not in sharded_channels]
        if plain:
            await getattr(connection, command)(*plain)
        if sharded_channels:
            await getattr(connection, f"s{command}")(*sharded_channels)

    async def _read(self, connection: Subscription | ClusterSubscription) -> None:
        message = await connection.next()
        if message is None:
            return
        kind, channel = message["type"], (message["channel"] or b"").decode()
        if kind in {"message", "smessage"}:
            self._on_message(channel, message["data"])
        elif kind in {"subscribe", "ssubscribe"} and channel in self._confirmed:
            self._confirmed[channel].set()
        elif kind in {"unsubscribe", "sunsubscribe"} and channel in self._confirmed:
            await self._send(
                connection, "subscribe", [channel]
            )  # subscribed again while the unsubscription was under way
