"""Clients of real servers in groups: of a cluster of three primaries they follow keys, also while their slots move;
behind sentinels they follow the primary through a failover.
"""

import asyncio
import signal
from collections.abc import AsyncIterator

import pytest
from redis.exceptions import RedisError, ResponseError

from onsale.backup.manifest import BadBackup
from onsale.backup.restore import require_empty_redis
from onsale.local.ports import HOST
from services.inventory.redis_keys import Keys
from services.queue import redis_keys as line_keys
from shared.contracts.frames import LINE_CHANNELS, line_channel
from shared.redis.client import REDIS_AWAY, Script, connect, identities, identity, node_for_key
from shared.redis.cluster import Cluster as ClusterClient
from shared.redis.cluster import address_of
from shared.redis.config_check import RedisRequirements, check_config
from shared.redis.pubsub import listen, open_subscription
from shared.redis.url import RedisUnfit
from tests.support.engines.engine_groups import PRIMARY, Cluster, Node, SentinelGroup
from tests.support.wait import wait_until

COUNT = Script("count", "-- KEYS[1] counter string so far\n-- ARGV[1] more int how many\n"
                        "return redis.call('INCRBY', KEYS[1], ARGV[1])\n")  # fmt: skip
EVENTS = [f"event-{n}" for n in range(12)]  # on all three primaries


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[ClusterClient]:
    opened = connect(cluster.url, timeout_s=1.0, retries=0)
    yield opened
    await opened.aclose()


async def test_a_pipeline_over_many_events_answers_in_the_order_of_its_commands(client: ClusterClient) -> None:
    pipe = client.pipeline(transaction=False)
    for number, event_id in enumerate(EVENTS):
        pipe.set(f"{{{event_id}}}:pipe", number).get(f"{{{event_id}}}:pipe")
    assert [int(answer) for answer in (await pipe.execute())[1::2]] == list(range(len(EVENTS)))
    nodes = {address_of(await node_for_key(client, f"{{{event_id}}}")) for event_id in EVENTS}
    assert len(nodes) == 3


async def test_a_refused_command_fails_its_pipeline_only_with_raise_on_error(client: ClusterClient) -> None:
    pipe = client.pipeline(transaction=False)
    pipe.set("{a}:text", "x").incr("{a}:text").set("{b}:text", "y")
    done, refused, other = await pipe.execute(raise_on_error=False)
    assert (done, other) == (True, True)
    assert isinstance(refused, ResponseError)
    with pytest.raises(ResponseError):
        await client.pipeline(transaction=True).incr("{a}:text").execute()


async def test_a_command_without_a_known_key_is_not_sent(client: ClusterClient) -> None:
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


async def test_a_restore_requires_every_primary_to_be_empty(cluster: Cluster, client: ClusterClient) -> None:
    await client.set("{a}:left-over", 1)
    with pytest.raises(BadBackup, match="is not empty"):
        await require_empty_redis(cluster.url)
    for node in cluster.redis_nodes:
        node.execute("FLUSHALL")
    await require_empty_redis(cluster.url)


async def test_a_script_runs_on_the_primary_of_its_event(client: ClusterClient) -> None:
    for event_id in EVENTS:
        counter = f"{{{event_id}}}:count"
        first = await COUNT(client, counter=counter, more=1)
        assert await COUNT.many(client, [{"counter": counter, "more": n} for n in (1, 2)]) == [first + 1, first + 3]


async def test_the_client_follows_a_slot_that_moves(client: ClusterClient, cluster: Cluster) -> None:
    key = "{moving}:count"
    source = await asyncio.to_thread(cluster.primary_of, key)
    target = next(node for node in cluster.redis_nodes if node is not source)
    slot = source.execute("CLUSTER KEYSLOT", key)
    assert await COUNT(client, counter=key, more=1) == 1
    target.execute("CLUSTER SETSLOT", slot, "IMPORTING", source.execute("CLUSTER MYID"))
    source.execute("CLUSTER SETSLOT", slot, "MIGRATING", target.execute("CLUSTER MYID"))
    assert await COUNT(client, counter=key, more=1) == 2, "the key is still on the source"
    source.execute("MIGRATE", HOST, target.port, key, 0, 1000)
    assert await COUNT(client, counter=key, more=1) == 3, "the key is on the target"
    for node in (target, source):
        node.execute("CLUSTER SETSLOT", slot, "NODE", target.execute("CLUSTER MYID"))
    assert await COUNT.many(client, [{"counter": key, "more": 1}] * 2) == [4, 5], "the slot is on the target"
    assert await client.pipeline(transaction=True).incr(key).get(key).execute() == [6, b"6"]
    assert address_of(await node_for_key(client, key)) == (HOST, target.port)


async def test_a_silent_shard_is_unavailable_for_its_own_events_only(client: ClusterClient, cluster: Cluster) -> None:
    names = [f"{{{event_id}}}" for event_id in EVENTS]
    before = await identities(client, names)
    frozen = await asyncio.to_thread(cluster.primary_of, names[0])
    frozen_names = {name for name in names if address_of(await node_for_key(client, name)) == (HOST, frozen.port)}
    frozen.send(signal.SIGSTOP)
    try:
        with pytest.raises(REDIS_AWAY):
            await client.set(f"{names[0]}:away", 1)
        assert await identities(client, names) == {name: before[name] for name in names if name not in frozen_names}
        others = [name for name in names if name not in frozen_names]
        assert all([await client.set(f"{name}:here", 1) for name in others])
        assert await client.ping()
    finally:
        frozen.send(signal.SIGCONT)

    async def recovered() -> bool:
        return await identities(client, names) == before

    await wait_until(recovered)
    assert (await identity(client, names[0])).text() == before[names[0]]


async def test_a_subscriber_by_pattern_and_one_by_shard_receive_every_frame(client: ClusterClient) -> None:
    received: list[bytes] = []
    subscribed = asyncio.Event()
    listening = asyncio.create_task(listen(client, LINE_CHANNELS, received.append, on_subscribed=subscribed.set))
    await asyncio.wait_for(subscribed.wait(), 5)
    async with open_subscription(client) as subscription:
        await subscription.ssubscribe(*(line_channel(event_id) for event_id in EVENTS))
        waiting = set(EVENTS)
        while waiting:
            message = await subscription.next()
            if message is not None and message["type"] == "ssubscribe":
                waiting.discard(message["channel"].decode().split("{")[1].split("}")[0])
        for event_id in EVENTS:
            await client.execute_command("SPUBLISH", line_channel(event_id), event_id)
        in_shards: set[str] = set()
        while len(in_shards) < len(EVENTS):
            message = await subscription.next()
            if message is not None and message["type"] == "smessage":
                in_shards.add(message["data"].decode())

    async def all_heard() -> bool:
        """Publishes again, as the line does: a node whose link to another is not up yet drops a frame."""
        for event_id in EVENTS:
            await client.publish(line_channel(event_id), event_id)
        return {text.decode() for text in received} == set(EVENTS)

    await wait_until(all_heard, timeout_s=20)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)


def test_all_keys_of_an_event_are_in_one_slot(cluster: Cluster) -> None:
    node: Node = cluster.redis_nodes[0]
    stock_keys = Keys.of("e")
    keys = [getattr(stock_keys, name) for name in Keys.__slots__]
    keys += [line_keys.room("e"), *line_keys.of_lanes("e", 3, [0, 1])]
    keys += [key_of("e", 3) for key_of in (line_keys.called, line_keys.active, line_keys.misses, line_keys.unwritten)]
    assert len({node.execute("CLUSTER KEYSLOT", key) for key in [*keys, line_channel("e")]}) == 1


async def test_a_url_of_the_wrong_kind_is_refused_and_the_right_kind_named(cluster: Cluster, redis_url: str) -> None:
    standalone = connect(f"redis://{HOST}:{cluster.redis_nodes[0].port}")
    with pytest.raises(RedisUnfit, match=r"its URL begins with redis\+cluster://"):
        await RedisRequirements(standalone, production=False).at_start()
    await standalone.aclose()
    clustered = connect(redis_url.replace("redis://", "redis+cluster://"))
    with pytest.raises(RedisUnfit, match="its URL begins with redis://"):
        await RedisRequirements(clustered, production=False).at_start()
    await clustered.aclose()


async def test_production_refuses_a_cluster_with_one_primary_that_evicts_keys(
    client: ClusterClient, cluster: Cluster
) -> None:
    assert await check_config(client) == ([], True)
    last = cluster.redis_nodes[-1]
    last.client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(RedisUnfit, match=f"{last.port}: maxmemory-policy is not noeviction"):
            await RedisRequirements(client, production=True).at_start()
        await RedisRequirements(client, production=False).at_start()  # warns only
    finally:
        last.client.config_set("maxmemory-policy", "noeviction")
    readiness = RedisRequirements(client, production=True)
    await readiness.check()


async def test_after_a_failover_the_same_client_writes_to_the_new_primary(sentinel_group: SentinelGroup) -> None:
    client = connect(sentinel_group.url)
    await client.set("kept", 1)
    before = await identity(client, "kept")
    assert await check_config(client) == ([], True)
    received: list[bytes] = []
    listening = asyncio.create_task(listen(client, "show:*", received.append))
    first, second = sentinel_group.redis_nodes
    assert address_of(client) == (HOST, first.port)
    await wait_until(lambda: failover_starts(sentinel_group))

    async def writes_to_second() -> bool:
        try:
            return await identity(client, "kept") != before and bool(await client.set("kept", 2))
        except REDIS_AWAY:
            return False

    await wait_until(writes_to_second)  # the first still believes for ten seconds that it is the primary
    assert first.role == "master"
    assert address_of(client) == (HOST, second.port)
    assert second.client.get("kept") == "2"
    await wait_until(lambda: second.client.publish("show:news", "x") and received)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    await client.aclose()


def failover_starts(sentinel_group: SentinelGroup) -> bool:
    """Starts a failover; refused until the sentinel knows that its replica can take over."""
    try:
        return bool(sentinel_group.sentinels[0].execute("SENTINEL FAILOVER", PRIMARY))
    except ResponseError:
        return False
