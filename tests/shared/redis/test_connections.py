"""Clients of Redis: a URL selects the kind, or is refused without showing its password; connections are bounded, and a
silent subscription wakes its process only to ping the server.
"""

import asyncio
from contextlib import aclosing

import pytest
from pydantic import ValidationError
from redis.exceptions import ConnectionError as RedisConnectionError

from shared.process.settings import ServiceSettings
from shared.redis import pubsub
from shared.redis.client import Redis, connect
from shared.redis.pubsub import Subscription
from shared.redis.url import RedisUrl
from tests.support.engines.engine_groups import SentinelGroup
from tests.support.wait import wait_until

CONNECTIONS_MAX = 4


async def call_500_times_at_once(url: str) -> None:
    async with aclosing(connect(url, connections_max=CONNECTIONS_MAX)) as client:
        before = len(await client.client_list())
        assert await asyncio.gather(*(client.echo(f"{n}") for n in range(500))) == [b"%d" % n for n in range(500)]
        assert len(await client.client_list()) - before < CONNECTIONS_MAX, "one connection was open before"


async def test_500_concurrent_calls_use_four_connections(redis_url: str) -> None:
    await call_500_times_at_once(redis_url)


async def test_500_concurrent_calls_use_four_connections_through_sentinels(sentinel_group: SentinelGroup) -> None:
    await call_500_times_at_once(sentinel_group.url)


async def test_a_reader_that_waits_while_the_server_becomes_a_replica_reads_on(redis_url: str) -> None:
    async with aclosing(connect(redis_url)) as client:
        reading = asyncio.create_task(client.xread({"log": "0"}, block=1500))
        await wait_until(lambda: _is_blocked(client), interval_s=0.05)
        await client.execute_command("REPLICAOF", "127.0.0.1", "1")
        try:
            assert not await reading
        finally:
            await client.execute_command("REPLICAOF", "NO", "ONE")


async def _is_blocked(client: Redis) -> bool:
    return bool((await client.info("clients"))["blocked_clients"])


async def test_a_caller_without_a_free_connection_fails_within_the_timeout(redis_url: str) -> None:
    async with aclosing(connect(redis_url, connections_max=1, timeout_s=0.3)) as client:
        taken = await client.connection_pool.get_connection()
        with pytest.raises(RedisConnectionError, match="No connection"):
            await client.ping()
        await client.connection_pool.release(taken)
        assert await client.ping()


@pytest.mark.parametrize(
    ("url", "kind", "first", "last"),
    [
        ("redis://host", "standalone", "redis://host:6379?", "redis://host:6379?"),
        ("rediss://:p%40ss@e:1/2", "standalone", "rediss://:p%40ss@e:1/2?", "rediss://:p%40ss@e:1/2?"),
        ("redis+cluster://u:p@a,b:7001,[::1]:7002", "cluster", "redis://u:p@a:6379?", "redis://u:p@[::1]:7002?"),
        (
            "rediss+cluster://a:1?ssl_ca_certs=/ca",
            "cluster",
            "rediss://a:1?ssl_ca_certs=%2Fca",
            "rediss://a:1?ssl_ca_certs=%2Fca",
        ),
        ("redis+sentinel://:p@a,b:2/main/3", "sentinel", "redis://:p@a:26379/3?", "redis://:p@b:2/3?"),
    ],
)
def test_the_scheme_of_a_url_selects_the_kind_of_redis(url: str, kind: str, first: str, last: str) -> None:
    parsed = RedisUrl.parse(url)
    assert parsed.kind == kind
    assert parsed.at(parsed.addresses[0]) == first
    assert parsed.at(parsed.addresses[-1]) == last


def test_a_sentinel_url_names_the_primary_and_has_a_password_of_its_own() -> None:
    parsed = RedisUrl.parse("redis+sentinel://:data@a,b/main?sentinel_username=s&sentinel_password=w@tch")
    assert (parsed.primary, parsed.sentinel_at(parsed.addresses[1])) == ("main", "redis://s:w%40tch@b:26379?")
    assert parsed.at(("c", 1)) == "redis://:data@c:1?"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://:secret@host", "must begin with one of redis://"),
        ("redis://:secret@a,b", "several hosts need"),
        ("redis://:secret@a:port", "every host"),
        ("redis+cluster://:secret@", "must name 1 to 100 hosts"),
        ("redis+cluster://:secret@a/1", "database 0 only"),
        ("redis+sentinel://:secret@a", "must end with the name of their primary"),
        ("redis+sentinel://:secret@a/main/x", "number of one database"),
        ("redis://:secret@a?ssl_ca_certs=/ca", "need a scheme that begins with rediss"),
        ("redis://:secret@a?decode_responses=yes", "unknown options: decode_responses"),
    ],
)
def test_an_invalid_redis_url_is_refused_at_start_without_showing_its_password(url: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message) as refused:
        ServiceSettings(redis_url=url)
    assert "secret" not in str(refused.value)


async def test_a_silent_subscription_is_read_once_between_two_pings(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pubsub, "ANSWER_WITHIN_S", 0.1)
    async with Subscription(redis) as subscription:
        await subscription.subscribe("nothing")
        read = [message and message["type"] for message in [await subscription.next() for _ in range(5)]]
    assert read == ["subscribe", None, "pong", None, "pong"]
