"""The republisher: a log that lost its data gets the last hour of events again; any other log is left alone."""

import pytest

from shared.messaging import republish
from shared.messaging.outbox import Relay
from shared.messaging.redis_streams import log_stream
from shared.messaging.republish import Republisher
from shared.redis.client import identity
from tests.shared.messaging.conftest import emit, logged


def mark(stream: str, tables) -> str:
    """The key that names the Redis process to which this outbox was published."""
    return f"{stream}:published_to:{tables[0].schema}"


@pytest.fixture
def relay(postgres, log, tables) -> Relay:
    return Relay(postgres, log, *tables)


@pytest.fixture
async def republisher(relay: Relay, postgres, redis, log, tables, monkeypatch: pytest.MonkeyPatch) -> Republisher:
    """A republisher of a Redis that has all published events."""
    monkeypatch.setattr(republish, "LEASE_S", 0)
    for stream in republish.NAMES:
        await redis.set(mark(stream, tables), (await identity(redis, stream)).text())
    await emit(postgres, tables, 1, 2)
    await relay.relay_batch()
    return Republisher(postgres, log, tables[0])


async def test_nothing_is_published_again_while_redis_stays_the_same(republisher: Republisher) -> None:
    assert [await republisher.check(), await republisher.check()] == [0, 0]


@pytest.mark.parametrize("lost", ["everything", "the last of it"])
async def test_another_redis_gets_the_events_again(
    republisher: Republisher, relay: Relay, redis, log, tables, lost: str
) -> None:
    arena_mark = mark(log_stream("arena"), tables)
    await redis.flushall()
    if lost == "the last of it":
        await redis.set(arena_mark, "another/process")
    assert await republisher.check() == 2
    assert await relay.relay_batch() == 2
    assert await logged(log) == [1, 2]
    await republisher.check()  # events published while Redis was replaced
    assert await redis.get(arena_mark) == (await identity(redis, arena_mark)).text().encode()
    await relay.relay_batch()
    assert await republisher.check() == 0
    assert await relay.relay_batch() == 0
