"""Which events and orders this process follows: a feed begins with its first listener and ends after its last.

Whatever is not provably heard in full by Pub/Sub is read from the log: at a feed's beginning, when a frame did not
arrive, after the connection was lost and found. What the log does not know up to now is asked for; and once a second
both are done while Pub/Sub is away.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from services.notifier.broadcast.hub import Hub
from services.notifier.feeds.event_feed import EventFeed
from services.notifier.feeds.feed import Feed
from services.notifier.feeds.order_feed import OrderFeed
from services.notifier.feeds.subscriber import Subscriber
from services.notifier.metrics import DEGRADED
from services.notifier.settings import Settings
from services.notifier.streams.limits import StreamRejected
from shared.contracts.frames import OrderFrame, keeps_log
from shared.contracts.inventory import InventoryClient
from shared.contracts.orders import BATCH_MAX, OrdersClient
from shared.contracts.queue import QueueClient
from shared.redis.client import Redis, RedisError
from shared.redis.snapshots import SnapshotPublisher
from shared.runtime.group_commit import GroupCommit
from shared.runtime.logging import data
from shared.web.problems import NotFound, Problem

log = logging.getLogger("onsale.notifier")
FRESH_SHARE = 2 / 3
NO_ORDER = "There is no order with this reference."


class FeedRegistry:
    """All feeds of this process, by the channels they hear."""

    def __init__(
        self,
        settings: Settings,
        hub: Hub,
        redis: Redis,
        showing: SnapshotPublisher,
        *,
        queue: QueueClient,
        inventory: InventoryClient,
        orders: OrdersClient,
    ) -> None:
        self._settings, self._hub, self._showing = settings, hub, showing
        self._queue, self._inventory, self._orders = queue, inventory, orders
        self._feeds: dict[tuple[str, str], Feed] = {}
        self._by_channel: dict[str, Feed] = {}
        self._reading: GroupCommit[str, OrderFrame] = GroupCommit(
            self._read, name="notifier.orders", batch_max=BATCH_MAX, waiting_max=settings.streams_max, in_flight_max=2
        )
        self.inbox = Subscriber(redis, self._hear, sharded=showing.sharded)

    @asynccontextmanager
    async def event(self, event_id: str) -> AsyncIterator[Feed]:
        """The feed of an event, alive at least for this long and known. Raises `UnknownEvent`, `StreamRejected`."""
        make = lambda: EventFeed(event_id, self._hub, queue=self._queue, inventory=self._inventory)  # noqa: E731
        async with self._acquire("event", event_id, make) as feed:
            yield feed

    @asynccontextmanager
    async def order(self, reference: str, *, user: str | None = None) -> AsyncIterator[Feed]:
        """The feed of an order, alive at least for this long and known. Raises `NotFound`, also for a `user` who does
        not own it, `StreamRejected`.
        """
        make = lambda: OrderFeed(reference, self._hub, read=self._reading.submit)  # noqa: E731
        async with self._acquire("order", reference, make) as feed:
            if user is not None and not feed.belongs_to(user):
                raise NotFound(NO_ORDER)
            yield feed

    @asynccontextmanager
    async def _acquire(self, kind: str, name: str, make: Callable[[], Feed]) -> AsyncIterator[Feed]:
        feed = self._feeds.get((kind, name))
        if feed is None:
            feed = self._feeds[kind, name] = make()
            self._by_channel.update(dict.fromkeys(feed.forms, feed))
            self._judge(feed)
            self._refresh(feed)
        feed.holders += 1
        try:
            await self._first_look(feed)
            yield feed
        finally:
            feed.holders -= 1
            feed.idle_since_s = asyncio.get_running_loop().time()

    async def _first_look(self, feed: Feed) -> None:
        try:
            async with asyncio.timeout(self._settings.first_snapshot_timeout_s):
                await feed.known.wait()
        except TimeoutError as late:
            raise StreamRejected("unanswered") from late
        if feed.refused is not None:
            raise type(feed.refused)(feed.refused.detail)

    async def sweep(self) -> None:
        """Asks for what is not heard in full, and lets go of what nobody listens to."""
        now_s = asyncio.get_running_loop().time()
        degraded = 0
        for key, feed in list(self._feeds.items()):
            self._let_go_of_topics(feed, now_s)
            if feed.refused is not None or (self._idle(feed.idle_since_s, now_s) and not feed.holders):
                await self._drop(key, feed)
                continue
            must_ask = self._judge(feed)
            degraded += must_ask
            if must_ask or feed.lacks or not feed.known.is_set() or feed.generation != self.inbox.generation:
                self._refresh(feed)
        DEGRADED.set(degraded)

    def _judge(self, feed: Feed) -> bool:
        now_s = asyncio.get_running_loop().time()
        return feed.judge(
            away=not self.inbox.connected, now_s=now_s, channel_stale_after_s=self._settings.channel_stale_after_s
        )

    def _idle(self, since_s: float, now_s: float) -> bool:
        return now_s - since_s >= self._settings.feed_idle_ttl_s

    def _let_go_of_topics(self, feed: Feed, now_s: float) -> None:
        for only, topic in list(feed.topics.items()):
            if not topic.connections and self._idle(topic.empty_since_s, now_s):
                del feed.topics[only]

    async def _drop(self, key: tuple[str, str], feed: Feed) -> None:
        del self._feeds[key]
        for channel in feed.forms:
            del self._by_channel[channel]
        if feed.asking is not None:
            feed.asking.cancel()
        await self.inbox.unfollow(*feed.forms)

    def _refresh(self, feed: Feed) -> None:
        if feed.asking is None or feed.asking.done():
            feed.asking = asyncio.create_task(self._ask(feed))

    async def _ask(self, feed: Feed) -> None:
        """Subscribes first and asks then: what happens in between is heard."""
        generation = await self.inbox.follow(*feed.forms)
        feed.lacks = False
        try:
            if not await self._found_in_log(feed):
                await feed.ask()
        except Problem as problem:
            log.info("feed.unanswered", extra=data(kind=feed.kind, problem=problem.slug))
        except Exception:
            log.exception("feed.unreadable", extra=data(kind=feed.kind))
        else:
            feed.generation = generation

    async def _found_in_log(self, feed: Feed) -> bool:
        """Whether the log brought this feed up to now, and with it every state it may have missed."""
        channels = [channel for channel in feed.forms if keeps_log(channel)]
        if not channels:
            return False
        try:
            log_of = await self._showing.log(channels)
            return feed.refill(log_of, fresh_s=self._settings.channel_stale_after_s * FRESH_SHARE)
        except (RedisError, OSError, ValueError) as away:
            log.info("log.unread", extra=data(kind=feed.kind, error=type(away).__name__))
            return False

    def _hear(self, channel: str, payload: bytes) -> None:
        feed = self._by_channel.get(channel)
        if feed is None:
            return
        try:
            feed.hear(channel, payload)
            if feed.lacks:
                self._refresh(feed)
        except ValueError:
            log.exception("frame.unreadable", extra=data(kind=feed.kind))

    async def _read(self, references: list[str]) -> list[OrderFrame | BaseException]:
        answer = await self._orders.read(references)
        return [frame or NotFound(NO_ORDER) for frame in answer.orders]

    async def close(self) -> None:
        """Stops asking."""
        asking = [feed.asking for feed in self._feeds.values() if feed.asking is not None]
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        await self._reading.close()
