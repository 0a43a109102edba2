"""A frame holds the changes of one window; a page that applies all frames has the state of a new snapshot.

Streams of orders: an order is published only to those who listen, and none of its states is missed.

A notifier subscribes to channels with listeners; while Pub/Sub is down, it requests frames from the services.
"""

import asyncio
from copy import copy
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis
from redis.crc import key_slot

from services.notifier.feeds import order_feed, subscriber
from services.notifier.feeds.event_feed import EventFeed
from services.notifier.feeds.feed import SectionFilter, StreamFilter, event_frame_id, parse_event_frame_id
from services.notifier.metrics import CONFLATED
from services.notifier.topics import topic as topic_module
from services.notifier.topics.topic import Topic
from services.orders.requests.requests import cancel_by_hand, change_address
from services.orders.state import State
from services.orders.store import store
from shared.contracts.frames import LINE_CHANNELS, line_channel, log_key, order_channel, stock_channel
from shared.contracts.orders import OrdersAnswer
from shared.contracts.queue import JoinBatch, JoinRequest
from shared.contracts.room_options import RoomOptions, Updates
from shared.messaging.snapshots import SnapshotPublisher
from shared.redis import pubsub as pubsub_module
from shared.redis.client import subscribed_channels
from tests.notifier.client import SseClient, all_have_head
from tests.notifier.conftest import Notifier, Start
from tests.notifier.frames import EVENT, REFERENCE, line_frame, order_frame, stock_frame
from tests.notifier.page import Page
from tests.notifier.places import block
from tests.notifier.tokens import queue_token
from tests.support.engines.tcp_proxy import TcpProxy
from tests.support.running.services import TEST, Neighbours
from tests.support.wait import wait_until

FILTERS = (None, frozenset({"A"}), frozenset({"A", "C"}))


async def test_a_frame_contains_only_the_sections_that_changed(notifier: Notifier):
    client = await notifier.connect()
    assert "delta" not in client.last("sections")
    await notifier.publish(stock_frame(11, A=100, B=199, GA1=300))
    await wait_until(lambda: client.last("sections").get("delta"))
    assert [section["section_id"] for section in client.last("sections")["sections"]] == ["B"]
    assert Page().apply(client.events).available == {"A": 100, "B": 199, "GA1": 300}


async def test_the_changes_of_one_window_are_sent_in_one_frame(start: Start):
    notifier = await start(window_ms=1500)
    client = await notifier.connect()
    await notifier.publish(stock_frame(11, A=99, B=200, GA1=300))
    await wait_until(lambda: len(client.all("sections")) == 2)
    await notifier.publish(stock_frame(12, A=98, B=200, GA1=300))
    await notifier.publish(line_frame(12, 9))
    await notifier.publish(stock_frame(13, A=97, B=199, GA1=300))
    await wait_until(lambda: len(client.all("sections")) == 3)
    last = {section["section_id"]: section["available_seats"] for section in client.last("sections")["sections"]}
    assert last == {"A": 97, "B": 199}
    assert [event.name for event in client.events][-2:] == ["line", "sections"]


async def test_a_change_undone_within_a_window_is_not_sent(start: Start):
    notifier = await start(window_ms=1500)
    client = await notifier.connect()
    await notifier.publish(stock_frame(11, A=99, B=200, GA1=300))
    await wait_until(lambda: len(client.all("sections")) == 2)
    conflated = CONFLATED.labels("event")._value.get()
    await notifier.publish(stock_frame(12, A=98, B=200, GA1=300))
    await notifier.publish(stock_frame(13, A=99, B=200, GA1=300))
    await wait_until(lambda: CONFLATED.labels("event")._value.get() == conflated + 1)  # a newcomer now gets A=99
    late = await notifier.listen(token=queue_token(2))
    await notifier.publish(line_frame(14, 9))
    await wait_until(lambda: late.head_seq == 9 == client.head_seq)
    assert len(client.all("sections")) == 2


async def test_an_event_file_can_set_its_own_window(start: Start):
    notifier = await start(window_ms=10_000)
    client = await notifier.connect()
    options = RoomOptions(updates=Updates(window_ms=0))
    for head_seq in (20, 21, 22):
        await notifier.publish(line_frame(head_seq, head_seq, options=options))
        await wait_until(partial(all_have_head, [client], head_seq))


async def test_a_full_snapshot_is_sent_from_time_to_time(notifier: Notifier, monkeypatch):
    client = await notifier.connect()
    monkeypatch.setattr(topic_module, "SNAPSHOT_EVERY_S", 0.0)
    await notifier.publish(stock_frame(11, A=99, B=200, GA1=300))
    await wait_until(lambda: len(client.all("sections")) == 2)
    assert "delta" not in client.last("sections")
    assert len(client.all("line")) == 2


STOCK = st.dictionaries(st.sampled_from("ABCD"), st.integers(0, 2), min_size=1)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("stock"), STOCK),
        st.tuples(st.just("line"), st.integers(0, 3)),
        st.tuples(st.just("requested"), STOCK),
        st.tuples(st.just("frame"), st.none()),
        st.tuples(st.just("join"), st.none()),
        st.tuples(st.just("return"), st.integers(0, 5)),
        st.tuples(st.just("down"), st.booleans()),
    ),
    max_size=40,
)


CHANGED_AND_BACK = [("stock", {"A": 2, "B": 1}), ("join", None), ("stock", {"A": 1, "B": 1})]
DOWN_AND_UP = [("down", True), ("frame", None), ("down", False), ("return", 0)]
SECTION_GONE = [("stock", {"A": 1, "B": 1, "C": 1}), ("frame", None), ("stock", {"A": 1, "B": 1})]


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(STEPS, st.sampled_from(FILTERS))
@example(CHANGED_AND_BACK, None)
@example(DOWN_AND_UP, None)
@example(SECTION_GONE, None)
def test_deltas_lead_to_the_same_state_as_a_new_snapshot(steps: list[tuple[str, Any]], section_filter: SectionFilter):
    """For any mix of frames, new listeners, returning listeners and outages; sections appear and disappear."""
    asyncio.run(_run_steps(steps, section_filter))


class _Reader:
    """A page, and the revision of the topic that it has, which the hub keeps for a connection."""

    def __init__(self, topic: Topic, page: Page) -> None:
        self.page = page.read(topic.replay((page.last_id or "").encode() or None)[1])
        self.revision = topic.revision

    def read(self, data: bytes, revision: int) -> None:
        if self.revision < revision:
            self.page.read(data)
            self.revision = revision


async def _run_steps(steps: list[tuple[str, Any]], section_filter: SectionFilter) -> None:
    stub: Any = SimpleNamespace(frame=print, stock=print, schedule=lambda topic: None)
    feed, version = EventFeed(EVENT, stub, queue=stub, inventory=stub), 10
    feed.apply(line_channel(EVENT), line_frame(version, 0), exact=True)
    feed.apply(stock_channel(EVENT), stock_frame(version, A=1, B=1), exact=True)
    topic = feed.topic(StreamFilter(section_filter))
    readers = [_Reader(topic, Page())]
    for verb, argument in [*steps, ("frame", None)]:
        version += 1
        if verb in {"stock", "requested"}:
            feed.apply(stock_channel(EVENT), stock_frame(version, **argument), exact=verb == "stock")
        elif verb == "line":
            feed.apply(line_channel(EVENT), line_frame(version, argument), exact=True)
        elif verb == "down":
            feed.update_degraded(away=argument, now_s=0.0, channel_stale_after_s=1e9)
        elif verb == "join":
            readers.append(_Reader(topic, Page()))
        elif verb == "return":
            readers.append(_Reader(topic, copy(readers[argument % len(readers)].page)))
        else:
            data = topic.next_frame()[0].data
            for reader in readers:
                reader.read(data, topic.revision)
    newcomer = _Reader(topic, Page()).page
    assert all(reader.page.state == newcomer.state for reader in readers)


def test_a_frame_id_can_be_parsed_only_with_the_filter_it_was_made_for():
    versions = parse_event_frame_id(b"3.17000000000000000000000000011", None)
    assert versions is not None
    for section_filter in FILTERS:
        text = event_frame_id(versions, section_filter)
        assert [parse_event_frame_id(text, other) == versions for other in FILTERS] == [
            other == section_filter for other in FILTERS
        ]
    for text in (b"", b"1", b"x.1", b"1.1.1", b"-1.2", b"1." + b"9" * 60):
        assert parse_event_frame_id(text, None) is None


CHANNEL, ADDRESS = order_channel(REFERENCE), "other@example.org"


@pytest.fixture
async def orders(neighbours: Neighbours) -> State:
    return await neighbours.real_orders.open()


async def change(orders: State) -> None:
    """Changes the address of the order, and publishes that to those who are known to listen."""
    order = await orders.store.read(REFERENCE)
    assert order is not None
    await change_address(orders.store, order, ADDRESS, sends_mail=False)
    latest = await orders.store.read(REFERENCE)
    assert latest is not None
    await orders.frames.publish(latest)


def is_changed(client: SseClient) -> bool:
    shown = client.last("order")
    return bool(shown and shown["customer"]["email"] == ADDRESS)


async def lose(*_: Any) -> set[str]:
    """Nobody seems to listen."""
    return set()


async def test_a_listener_is_known_before_its_order_is_read(
    notifier: Notifier, orders: State, redis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order changes while the stream of it begins, at the latest moment of each side: after the publisher saw that
    nobody listens, and after the order was read for the stream.
    """
    real, listened = notifier.state.feeds._orders.read, list[set[str]]()

    async def read_early(references: list[str]) -> OrdersAnswer:
        listened.append(await subscribed_channels(redis, [CHANNEL]))
        answer = await real(references)
        await change(orders)
        return answer

    assert await subscribed_channels(redis, [CHANNEL]) == set()
    monkeypatch.setattr(notifier.state.feeds._orders, "read", read_early)
    client = await notifier.listen_order()
    await wait_until(lambda: is_changed(client))
    assert listened[0] == {CHANNEL}


async def test_a_change_that_nobody_heard_is_in_the_first_frame_of_a_later_listener(
    notifier: Notifier, orders: State, redis: Any
) -> None:
    await change(orders)
    assert await subscribed_channels(redis, [CHANNEL]) == set()
    client = await notifier.connect_order()
    assert is_changed(client)


async def test_a_lost_frame_of_an_order_is_made_good(
    start: Start, orders: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order_feed, "SILENT_MAX_S", 0.3)
    notifier = await start()
    client = await notifier.connect_order()
    monkeypatch.setattr(store, "subscribed_channels", lose)
    await change(orders)
    await wait_until(lambda: is_changed(client))


async def test_an_order_that_was_heard_of_or_has_ended_is_read_again_rarely(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order_feed, "SILENT_MAX_S", 0.2)
    notifier = await start()
    await notifier.connect_order()
    [feed] = notifier.state.feeds._feeds.values()
    last_s = max(feed.loaded_s, feed.channels[CHANNEL].received_s)
    assert (feed.is_due(last_s + 0.19), feed.is_due(last_s + 0.21)) == (False, True)
    await notifier.publish(order_frame(1, "confirmed"))
    await wait_until(lambda: getattr(feed.channels[CHANNEL].frame, "status", None) == "confirmed")
    ended_s = feed.channels[CHANNEL].received_s + order_feed.ENDED_SILENT_MAX_S
    assert (feed.is_due(ended_s - 0.01), feed.is_due(ended_s + 0.01)) == (False, True)


CHANNELS = {line_channel(EVENT), stock_channel(EVENT)}


UNPUBLISHED = pytest.mark.usefixtures("unpublished")


@pytest.fixture(params=["plain", "sharded"])
def sharded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Frames go to shards, as on a cluster, or do not."""
    monkeypatch.setattr(SnapshotPublisher, "sharded", AsyncMock(return_value=request.param == "sharded"))
    return bool(request.param == "sharded")


async def test_a_channel_is_subscribed_to_only_while_it_has_a_listener(sharded: bool, start: Start):
    notifier = await start()
    assert await notifier.channels() == set()
    clients = [await notifier.connect(), await notifier.connect("?sections=A")]
    if sharded:
        assert await notifier.redis.pubsub_channels("show:*") == []
    for client in clients:
        assert await notifier.channels() == CHANNELS
        await client.close()
    await wait_until(lambda: notifier.has_channels(set()))
    assert await notifier.publish(line_frame(50)) == 0
    client, order_client = await notifier.connect(), await notifier.connect_order()
    assert await notifier.publish(line_frame(60, 60)) == 1
    await notifier.publish(order_frame(11, "confirmed"))
    await wait_until(lambda: client.head_seq == 60 and order_client.last("order")["status"] == "confirmed")


async def test_subscribers_to_all_events_use_plain_pub_sub(redis: Redis):
    async with redis.pubsub() as subscription:
        await subscription.psubscribe(LINE_CHANNELS)
        publisher = SnapshotPublisher(redis)
        publisher._sharded = True
        assert await publisher.publish(line_channel(EVENT), line_frame(1, 2)) == 1
        async with asyncio.timeout(5):
            while (message := await subscription.get_message(ignore_subscribe_messages=True, timeout=1)) is None:
                pass
        assert b'"head_seq":2' in message["data"]


async def test_a_redis_without_cluster_uses_plain_pub_sub(redis: Redis):
    assert await SnapshotPublisher(redis).sharded() is False
    assert key_slot(line_channel(EVENT).encode()) == key_slot(log_key(line_channel(EVENT)).encode())


@UNPUBLISHED
async def test_while_pubsub_is_down_streams_stay_open_and_frames_are_requested(
    notifier: Notifier, neighbours: Neighbours, redis_proxy: TcpProxy
):
    client = await notifier.connect()
    redis_proxy.set_mode("resets")
    await wait_until(lambda: client.last("line").get("degraded"))
    assert client.last("sections")["degraded"] is True
    assert [notice["kind"] for notice in client.all("notice")] == ["interrupted"]
    queue = await neighbours.real_queue.open()
    fans = [JoinRequest(holder=f"fan-{n}") for n in range(3)]
    await queue.joins.join(JoinBatch(event_id=EVENT, batch_id="a-batch-1", joins=fans))
    await queue.gatekeeper.tick(EVENT)
    await wait_until(lambda: client.last("line")["tail_seq"] == 3)
    second = await notifier.listen(token=queue_token(2), last_event_id=client.last_id or "")
    await wait_until(lambda: second.last("line"))
    assert second.last("line")["degraded"] is True

    redis_proxy.set_mode("passes")
    await wait_until(lambda: "degraded" not in client.last("line"))
    assert "degraded" not in client.last("sections")
    await wait_until(lambda: second.last("notice"))
    assert [notice["kind"] for notice in client.all("notice")] == ["interrupted", "restored"]
    await wait_until(lambda: notifier.publish(line_frame(30, 30)))
    await wait_until(lambda: client.head_seq == 30)
    assert not client.closed


async def test_after_a_reconnect_the_frames_that_were_missed_are_requested(
    start: Start, neighbours: Neighbours, redis_proxy: TcpProxy, monkeypatch
):
    """An order's frame is published once, so a frame missed in a short outage is never repeated."""
    monkeypatch.setattr(subscriber, "RECONNECT_S", 0.01)
    notifier = await start(ask_interval_s=0.5)  # longer than the outage, which only the reconnect reveals
    client = await notifier.connect_order()
    generation = notifier.state.feeds.subscriber.generation
    redis_proxy.set_mode("resets")
    orders = await neighbours.real_orders.open()
    order = await orders.store.read(REFERENCE)
    assert order is not None
    await cancel_by_hand(orders.store, order, TEST)
    await orders.worker.settle(REFERENCE)
    redis_proxy.set_mode("passes")
    await wait_until(lambda: notifier.state.feeds.subscriber.generation > generation)
    await wait_until(lambda: client.last("order")["status"] == "cancelled")


@UNPUBLISHED
async def test_the_frames_of_a_stale_channel_are_requested(start: Start, neighbours: Neighbours):
    notifier = await start(channel_stale_after_s=0.3)
    order_client, client = await notifier.connect_order(), await notifier.listen()
    await wait_until(lambda: client.last("line") and client.last("line").get("degraded"))
    await block(await neighbours.real_inventory.open(), "A-1-2", "A-1-3", "A-1-4")
    await wait_until(lambda: client.last("sections")["sections"][0]["available_seats"] == 1)
    await notifier.publish(line_frame(30, 30))
    await notifier.publish(stock_frame(30, A=2))
    await wait_until(lambda: "degraded" not in client.last("line"))
    assert not order_client.all("notice"), "the frames of an order are not repeated"


async def test_an_unreadable_frame_is_ignored(notifier: Notifier):
    client = await notifier.connect()
    await notifier.redis.publish(line_channel(EVENT), b"\xff{")
    await notifier.publish(line_frame(11, 6))
    await wait_until(lambda: client.head_seq == 6)


@UNPUBLISHED
async def test_a_stream_without_a_first_snapshot_is_rejected_with_a_retry_delay(start: Start, neighbours: Neighbours):
    notifier = await start(first_snapshot_timeout_s=0.2)
    neighbours.queue.away = True
    client = await notifier.listen()
    await wait_until(lambda: client.closed)
    assert (client.status, [event.name for event in client.events], len(client.retries)) == (200, ["turned_away"], 1)
    neighbours.queue.away = False

    async def is_answered() -> object:
        again = await notifier.listen()
        await wait_until(lambda: again.closed or again.last("sections"))
        return again.last("sections")

    await wait_until(is_answered)


async def test_a_process_that_never_reached_pubsub_is_not_ready(start: Start, redis_proxy: TcpProxy):
    notifier = await start()
    feed_subscriber = notifier.state.feeds.subscriber
    await feed_subscriber.check()
    redis_proxy.set_mode("resets")
    await wait_until(lambda: not feed_subscriber.connected)
    await feed_subscriber.check()
    feed_subscriber.generation = 0
    with pytest.raises(ConnectionError):
        await feed_subscriber.check()


async def test_a_redis_connection_that_answers_no_ping_counts_as_lost(
    notifier: Notifier, redis_proxy: TcpProxy, monkeypatch
):
    await notifier.redis.config_resetstat()
    await notifier.connect()
    monkeypatch.setattr(pubsub_module, "ANSWER_WITHIN_S", 0.15)
    await notifier.publish(line_frame(11, 6))  # wakes the reader, which then uses the new interval
    generation = notifier.state.feeds.subscriber.generation

    async def pinged() -> bool:
        stats = await notifier.redis.info("commandstats")
        return int(stats.get("cmdstat_ping", {}).get("calls", 0)) >= 3

    await wait_until(pinged)
    assert notifier.state.feeds.subscriber.generation == generation, "a quiet connection that answers pings is kept"
    redis_proxy.set_mode("swallows")
    await wait_until(lambda: not notifier.state.feeds.subscriber.connected)


async def test_a_lost_subscription_to_a_channel_with_a_listener_is_restored(notifier: Notifier):
    await notifier.connect()
    assert notifier.state.feeds.subscriber._connection is not None
    await notifier.state.feeds.subscriber._connection.unsubscribe(*CHANNELS)
    await wait_until(lambda: notifier.has_channels(CHANNELS))


async def test_a_new_stream_is_marked_degraded_at_once_while_pubsub_is_down(notifier: Notifier, redis_proxy: TcpProxy):
    redis_proxy.set_mode("resets")
    await wait_until(lambda: not notifier.state.feeds.subscriber.connected)
    client = await notifier.connect()
    assert [data["degraded"] for data in (*client.all("line"), *client.all("sections"))] == [True, True]


@pytest.mark.usefixtures("sharded")
async def test_a_connection_that_is_lost_and_restored_at_once_counts_as_a_new_one(start: Start):
    notifier = await start()
    client = await notifier.connect()
    generation = notifier.state.feeds.subscriber.generation
    await notifier.redis.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    await notifier.publish(line_frame(11, 9))
    await wait_until(lambda: notifier.state.feeds.subscriber.generation > generation and client.head_seq == 9)
