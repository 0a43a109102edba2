"""Frames in shards: listeners of single events hear them there, those that hear all events the plain way."""

import asyncio

from redis.asyncio import Redis
from redis.crc import key_slot

from shared.contracts.frames import LINE_CHANNELS, line_channel, log_key
from shared.redis.snapshots import SnapshotPublisher
from tests.notifier.conftest import EVENT, Neighbours, Start, fan, line, order, stock
from tests.notifier.page import Page
from tests.support.wait import wait_until

CHANNELS = {f"show:{{{EVENT}}}:line", f"show:{{{EVENT}}}:sections"}


async def test_a_notifier_listens_in_shards_while_somebody_listens_to_it(start: Start):
    notifier = await start(pubsub="sharded", window_ms=0)
    assert await notifier.channels() == set()
    ear = await notifier.listen()
    await wait_until(lambda: ear.last("sections"))
    assert await notifier.channels() == CHANNELS
    assert await notifier.redis.pubsub_channels("show:*") == []
    assert await notifier.show(stock(11, A=1, B=200, GA1=300)) == 1
    await wait_until(lambda: Page().hear(ear.heard).available["A"] == 1)
    of_order = await notifier.listen_order(token=None)
    await wait_until(lambda: of_order.last("order"))
    await notifier.show(order(11, "confirmed"))
    await wait_until(lambda: of_order.last("order")["status"] == "confirmed")
    await ear.close()

    async def silent() -> bool:
        return await notifier.channels() == set()

    await wait_until(silent)


async def test_a_lost_connection_to_a_shard_is_made_good(start: Start, neighbours: Neighbours):
    notifier = await start(pubsub="sharded", window_ms=0)
    ear = await notifier.listen(token=fan(1))
    await wait_until(lambda: ear.last("sections"))
    inbox = notifier.state.following.inbox
    generation = inbox.generation
    await notifier.redis.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    await notifier.show(line(11, 9))
    await wait_until(lambda: inbox.generation > generation and ear.last("line")["head_seq"] == 9)


async def test_those_that_hear_all_events_hear_the_plain_way_too(redis: Redis):
    async with redis.pubsub() as everything:
        await everything.psubscribe(LINE_CHANNELS)
        assert await SnapshotPublisher(redis, "sharded").publish(line_channel(EVENT), line(1, 2)) == 1
        async with asyncio.timeout(5):
            while (message := await everything.get_message(ignore_subscribe_messages=True, timeout=1)) is None:
                pass
        assert b'"head_seq":2' in message["data"]


async def test_an_engine_that_is_no_cluster_is_used_the_plain_way(redis: Redis):
    assert await SnapshotPublisher(redis, "auto").sharded() is False
    assert key_slot(line_channel(EVENT).encode()) == key_slot(log_key(line_channel(EVENT)).encode())
