"""A real cluster of three primaries behind one client: commands find their keys, also while these move."""

import asyncio
import signal
from collections.abc import AsyncIterator

import pytest
from redis.exceptions import RedisError, ResponseError

from onsale.backup.folder import BadBackup
from onsale.backup.restore import require_empty_redis
from onsale.local.ports import HOST
from services.inventory.redis_keys import Keys
from services.queue import redis_keys as line_keys
from shared.contracts.frames import LINE_CHANNELS, line_channel
from shared.redis.client import REDIS_AWAY, connect, identities, identity, node_for_key
from shared.redis.cluster import Cluster as ClusterClient
from shared.redis.config_check import RedisRequirements, check_config
from shared.redis.pubsub import listen, open_subscription
from shared.redis.scripts import Script
from shared.redis.slot_map import address_of
from shared.redis.url import RedisUnfit
from tests.support.engines.engine_groups import Cluster, Node
from tests.support.wait import wait_until

COUNT = Script("count", "-- KEYS[1] counter string so far\n-- ARGV[1] more int how many\n"
                        "return redis.call('INCRBY', KEYS[1], ARGV[1])\n")  # fmt: skip
EVENTS = [f"event-{n}" for n in range(12)]  # on all three


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[ClusterClient]:
    running = connect(cluster.url, timeout_s=1.0, retries=0)
    yield running
    await running.aclose()


async def test_a_pipeline_over_many_events_answers_in_its_order(client: ClusterClient) -> None:
    pipe = client.pipeline(transaction=False)
    for number, event_id in enumerate(EVENTS):
        pipe.set(f"{{{event_id}}}:pipe", number).get(f"{{{event_id}}}:pipe")
    assert [int(answer) for answer in (await pipe.execute())[1::2]] == list(range(len(EVENTS)))
    holders = {address_of(await node_for_key(client, f"{{{event_id}}}")) for event_id in EVENTS}
    assert len(holders) == 3


async def test_a_refused_member_fails_a_pipeline_only_if_it_may(client: ClusterClient) -> None:
    pipe = client.pipeline(transaction=False)
    pipe.set("{a}:text", "x").incr("{a}:text").set("{b}:text", "y")
    done, refused, other = await pipe.execute(raise_on_error=False)
    assert (done, other) == (True, True)
    assert isinstance(refused, ResponseError)
    with pytest.raises(ResponseError):
        await client.pipeline(transaction=True).incr("{a}:text").execute()


async def test_a_command_without_a_known_key_is_refused_before_it_is_sent(client: ClusterClient) -> None:
    for command in (("SCAN", 0), ("EVALSHA", "f" * 40, 0), ("DEBUG", "SLEEP", 0), ("XREAD", "COUNT", 1), ("GET",)):
        with pytest.raises(RedisError, match=f"{command[0]} has no key"):
            await client.execute_command(*command)
    with pytest.raises(RedisError, match="PING has no key"):
        client.pipeline().ping()


async def test_the_keys_of_all_primaries_are_counted(client: ClusterClient) -> None:
    before = await client.dbsize()
    for event_id in EVENTS:
        await client.set(f"{{{event_id}}}:counted", 1)
    assert await client.dbsize() == before + len(EVENTS)


async def test_a_restore_asks_every_primary_whether_it_is_empty(cluster: Cluster, client: ClusterClient) -> None:
    await client.set("{a}:left-over", 1)
    with pytest.raises(BadBackup, match="is not empty"):
        await require_empty_redis(cluster.url)
    for node in cluster.engines:
        node.execute("FLUSHALL")
    await require_empty_redis(cluster.url)


async def test_scripts_run_where_their_event_is(client: ClusterClient) -> None:
    for event_id in EVENTS:
        counter = f"{{{event_id}}}:count"
        first = await COUNT(client, counter=counter, more=1)
        assert await COUNT.many(client, [{"counter": counter, "more": n} for n in (1, 2)]) == [first + 1, first + 3]


async def test_a_slot_that_moves_is_followed(client: ClusterClient, cluster: Cluster) -> None:
    key = "{moving}:count"
    there = await asyncio.to_thread(cluster.primary_of, key)
    other = next(node for node in cluster.engines if node is not there)
    slot = there.execute("CLUSTER KEYSLOT", key)
    assert await COUNT(client, counter=key, more=1) == 1
    other.execute("CLUSTER SETSLOT", slot, "IMPORTING", there.execute("CLUSTER MYID"))
    there.execute("CLUSTER SETSLOT", slot, "MIGRATING", other.execute("CLUSTER MYID"))
    assert await COUNT(client, counter=key, more=1) == 2, "still where it was"
    there.execute("MIGRATE", HOST, other.port, key, 0, 1000)
    assert await COUNT(client, counter=key, more=1) == 3, "asked for where it is going"
    for node in (other, there):
        node.execute("CLUSTER SETSLOT", slot, "NODE", other.execute("CLUSTER MYID"))
    assert await COUNT.many(client, [{"counter": key, "more": 1}] * 2) == [4, 5], "moved"
    assert await client.pipeline(transaction=True).incr(key).get(key).execute() == [6, b"6"]
    assert address_of(await node_for_key(client, key)) == (HOST, other.port)


async def test_a_shard_that_does_not_answer_is_away_for_its_own_events(client: ClusterClient, cluster: Cluster) -> None:
    names = [f"{{{event_id}}}" for event_id in EVENTS]
    before = await identities(client, names)
    frozen = await asyncio.to_thread(cluster.primary_of, names[0])
    theirs = {name for name in names if address_of(await node_for_key(client, name)) == (HOST, frozen.port)}
    frozen.send(signal.SIGSTOP)
    try:
        with pytest.raises(REDIS_AWAY):
            await client.set(f"{names[0]}:away", 1)
        assert await identities(client, names) == {name: before[name] for name in names if name not in theirs}
        others = [name for name in names if name not in theirs]
        assert all([await client.set(f"{name}:here", 1) for name in others])
        assert await client.ping()
    finally:
        frozen.send(signal.SIGCONT)

    async def back() -> bool:
        return await identities(client, names) == before

    await wait_until(back)
    assert (await identity(client, names[0])).text() == before[names[0]]


async def test_what_is_shown_anywhere_is_heard_by_pattern_and_by_shard(client: ClusterClient) -> None:
    heard: list[bytes] = []
    begun = asyncio.Event()
    listening = asyncio.create_task(listen(client, LINE_CHANNELS, heard.append, on_subscribed=begun.set))
    await asyncio.wait_for(begun.wait(), 5)
    async with open_subscription(client) as hearing:
        await hearing.ssubscribe(*(line_channel(event_id) for event_id in EVENTS))
        waiting = set(EVENTS)
        while waiting:
            message = await hearing.next()
            if message is not None and message["type"] == "ssubscribe":
                waiting.discard(message["channel"].decode().split("{")[1].split("}")[0])
        for event_id in EVENTS:
            await client.publish(line_channel(event_id), event_id)
            await client.execute_command("SPUBLISH", line_channel(event_id), event_id)
        in_shards: set[str] = set()
        while len(in_shards) < len(EVENTS):
            message = await hearing.next()
            if message is not None and message["type"] == "smessage":
                in_shards.add(message["data"].decode())
    await wait_until(lambda: {text.decode() for text in heard} == set(EVENTS))
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)


def test_all_keys_of_an_event_are_in_one_slot(cluster: Cluster) -> None:
    node: Node = cluster.engines[0]
    of_stock = Keys.of("e")
    made = [getattr(of_stock, name) for name in Keys.__slots__]
    made += [line_keys.room("e"), *line_keys.of_lanes("e", 3, [0, 1])]
    made += [of("e", 3) for of in (line_keys.called, line_keys.active, line_keys.misses, line_keys.unwritten)]
    assert len({node.execute("CLUSTER KEYSLOT", key) for key in [*made, line_channel("e")]}) == 1


async def test_a_url_of_another_kind_is_said_to_be_that(cluster: Cluster, redis_url: str) -> None:
    plain = connect(f"redis://{HOST}:{cluster.engines[0].port}")
    with pytest.raises(RedisUnfit, match=r"its URL begins with redis\+cluster://"):
        await RedisRequirements(plain, production=False).at_start()
    await plain.aclose()
    alone = connect(redis_url.replace("redis://", "redis+cluster://"))
    with pytest.raises(RedisUnfit, match="its URL begins with redis://"):
        await RedisRequirements(alone, production=False).at_start()
    await alone.aclose()


async def test_in_production_every_process_must_keep_what_it_is_told(client: ClusterClient, cluster: Cluster) -> None:
    assert await check_config(client) == ([], True)
    last = cluster.engines[-1]
    last.client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(RedisUnfit, match=f"{last.port}: maxmemory-policy is not noeviction"):
            await RedisRequirements(client, production=True).at_start()
        await RedisRequirements(client, production=False).at_start()  # warned of
    finally:
        last.client.config_set("maxmemory-policy", "noeviction")
    readiness = RedisRequirements(client, production=True)
    await readiness.check()
