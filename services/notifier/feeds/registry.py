"""The registry of feeds: a feed begins with its first listener and ends some time after its last.

A feed is loaded from the log whenever Pub/Sub may not have delivered everything: at its beginning, when a frame did not
arrive, and after the connection was lost. What the log does not have up to now is requested from the services. While
Pub/Sub is away both happen at every sweep.
"""

import asyncio
from collections import defaultdict
from contextlib import suppress

from services.notifier.feeds.event_feed import EventFeed
from services.notifier.feeds.feed import Feed
from services.notifier.feeds.order_feed import OrderFeed
from services.notifier.feeds.subscriber import Subscriber
from services.notifier.metrics import DEGRADED
from services.notifier.problems import StreamRejected
from services.notifier.settings import Settings
from services.notifier.topics.hub import Hub
from services.notifier.tuning import Tuning
from shared.concurrency.background import Quiet, stop
from shared.concurrency.coalescing import GroupCommit
from shared.contracts.frames import OrderFrame, keeps_log, order_channel
from shared.contracts.inventory import InventoryClient
from shared.contracts.orders import BATCH_MAX, OrdersClient
from shared.contracts.queue import QueueClient
from shared.errors.problems import NotFound, Problem
from shared.messaging.snapshots import SnapshotPublisher
from shared.redis.client import Redis, RedisError
from shared.runtime.logging import get_logger

log = get_logger("onsale.notifier")
FRESH_FRACTION = 2 / 3
NO_ORDER = "There is no order with this reference."


class FeedRegistry:
    """All feeds of this process, each by one of its channels.

    `with_seats` is the class of the feeds of streams with seats, if a feature has put it there.
    """

    def __init__(
        self,
        settings: Settings,
        tuning: Tuning,
        hub: Hub,
        redis: Redis,
        snapshots: SnapshotPublisher,
        *,
        queue: QueueClient,
        inventory: InventoryClient,
        orders: OrdersClient,
    ) -> None:
        self._tuning, self._hub = tuning, hub
        self._redis, self._snapshots = redis, snapshots
        self._queue, self._inventory, self._orders = queue, inventory, orders
        self.with_seats: type[EventFeed] | None = None
        self._feeds: dict[str, Feed] = {}
        self._by_channel: defaultdict[str, list[Feed]] = defaultdict(list)
        self._order_reads: GroupCommit[str, OrderFrame] = GroupCommit(
            self._read_orders,
            name="notifier.orders",
            batch_max=BATCH_MAX,
            waiting_max=settings.streams_max,
            in_flight_max=2,
        )
        self.subscriber = Subscriber(redis, self._on_message, sharded=snapshots.sharded)

    async def event(self, event_id: str, *, with_seats: bool = False) -> Feed:
        """The loaded feed of an event; the caller releases it. Raises `UnknownEvent`, `StreamRejected`, and `NotFound`
        where no seats are shown.
        """
        kind = self.with_seats if with_seats else EventFeed
        if kind is None:
            raise NotFound
        name = kind.named_by(event_id)
        feed = self._feeds.get(name) or self._add(
            name, kind(event_id, self._hub, queue=self._queue, inventory=self._inventory)
        )
        return await self._lease(feed)

    async def order(self, reference: str, *, user: str | None = None) -> Feed:
        """The loaded feed of an order; the caller releases it. Raises `StreamRejected`, `NotFound`; that also for a
        `user` who does not own it.
        """
        name = order_channel(reference)
        feed = self._feeds.get(name) or self._add(name, OrderFeed(reference, self._hub, read=self._order_reads.submit))
        return await self._lease(feed, user=user)

    def _add(self, name: str, feed: Feed) -> Feed:
        self._feeds[name] = feed
        for channel in feed.channels:
            self._by_channel[channel].append(feed)
        self._update_degraded(feed)
        self._refresh(feed)
        return feed

    async def _lease(self, feed: Feed, *, user: str | None = None) -> Feed:
        feed.lease_count += 1
        try:
            await self._wait_until_loaded(feed)
            if user is not None and not feed.belongs_to(user):
                raise NotFound(NO_ORDER)
        except BaseException:
            feed.release()
            raise
        return feed

    async def _wait_until_loaded(self, feed: Feed) -> None:
        try:
            async with asyncio.timeout(self._tuning.first_snapshot_timeout_s):
                await feed.loaded.wait()
        except TimeoutError as timeout:
            raise StreamRejected("unanswered") from timeout
        if feed.error is not None:
            raise type(feed.error)(feed.error.detail)

    async def sweep(self) -> Quiet:
        """Loads feeds that may have missed frames, and drops feeds and topics without listeners."""
        now_s = asyncio.get_running_loop().time()
        degraded = 0
        for name, feed in list(self._feeds.items()):
            self._drop_idle_topics(feed, now_s)
            if feed.error is not None or (self._idle(feed.idle_since_s, now_s) and not feed.lease_count):
                await self._drop(name)
                continue
            await self._keep_watched(feed)
            is_degraded = self._update_degraded(feed)
            degraded += is_degraded
            if is_degraded or feed.is_due(now_s) or self._may_lack_frames(feed):
                self._refresh(feed)
        DEGRADED.set(degraded)
        return Quiet(0)

    def _may_lack_frames(self, feed: Feed) -> bool:
        return feed.has_gap or not feed.loaded.is_set() or feed.generation != self.subscriber.generation

    def _update_degraded(self, feed: Feed) -> bool:
        now_s = asyncio.get_running_loop().time()
        return feed.update_degraded(
            away=not self.subscriber.connected, now_s=now_s, channel_stale_after_s=self._tuning.channel_stale_after_s
        )

    def _idle(self, since_s: float, now_s: float) -> bool:
        return now_s - since_s >= self._tuning.feed_idle_ttl_s

    def _drop_idle_topics(self, feed: Feed, now_s: float) -> None:
        for stream_filter, topic in list(feed.topics.items()):
            if not topic.connections and self._idle(topic.empty_since_s, now_s):
                del feed.topics[stream_filter]

    async def _drop(self, name: str) -> None:
        feed = self._feeds.pop(name)
        for channel in feed.channels:
            self._by_channel[channel].remove(feed)
        if feed.load_task is not None:
            feed.load_task.cancel()
        unused = [channel for channel in feed.channels if not self._by_channel[channel]]
        for channel in unused:
            del self._by_channel[channel]
        await self.subscriber.unsubscribe(*unused)

    async def _keep_watched(self, feed: Feed) -> None:
        with suppress(RedisError, OSError):  # nothing is published meanwhile: the feed requests its frames
            await feed.keep_watched(self._redis)

    def _refresh(self, feed: Feed) -> None:
        if feed.load_task is None or feed.load_task.done():
            feed.loaded_s = asyncio.get_running_loop().time()
            feed.load_task = asyncio.create_task(self._load(feed))

    async def _load(self, feed: Feed) -> None:
        """Subscribes before it loads, so that frames in between are not missed."""
        await self._keep_watched(feed)
        generation = await self.subscriber.subscribe(*feed.channels)
        feed.has_gap = False
        try:
            if not await self._restored_from_log(feed):
                await feed.request_frames()
        except Problem as problem:
            log.info("feed.request_failed", kind=feed.kind, problem=problem.slug)
        except Exception:
            log.exception("feed.invalid_frame", kind=feed.kind)
        else:
            feed.generation = generation

    async def _restored_from_log(self, feed: Feed) -> bool:
        """Whether the log brought the feed up to now, including every state it may have missed."""
        channels = [channel for channel in feed.channels if keeps_log(channel)]
        if not channels:
            return False
        try:
            entries = await self._snapshots.log(channels)
            return feed.restore_from_log(entries, fresh_s=self._tuning.channel_stale_after_s * FRESH_FRACTION)
        except (RedisError, OSError, ValueError) as away:
            log.info("log.unreadable", kind=feed.kind, error=type(away).__name__)
            return False

    def _on_message(self, channel: str, payload: bytes) -> None:
        for feed in self._by_channel.get(channel, ()):
            try:
                feed.on_message(channel, payload)
                if feed.has_gap:
                    self._refresh(feed)
            except ValueError:
                log.exception("frame.invalid", kind=feed.kind)

    async def _read_orders(self, references: list[str]) -> list[OrderFrame | BaseException]:
        answer = await self._orders.read(references)
        return [frame or NotFound(NO_ORDER) for frame in answer.orders]

    async def close(self) -> None:
        """Cancels pending loads."""
        await stop({feed.load_task for feed in self._feeds.values() if feed.load_task is not None})
        await self._order_reads.close()
