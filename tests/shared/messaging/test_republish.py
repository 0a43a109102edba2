"""An event log that lost its last hour hears of it again; one that did not is left alone."""

import pytest

from shared.messaging import republish
from shared.messaging.outbox import Relay, emit_events
from shared.messaging.redis_streams import log_stream
from shared.messaging.republish import Republisher
from shared.redis.client import identity
from tests.shared.messaging.test_outbox import event, log, logged, tables

__all__ = ["log", "tables"]
MARK = log_stream("arena") + ":published_to:outbox_test"


@pytest.fixture
def relay(postgres, log, tables) -> Relay:
    return Relay(postgres, log, *tables)


@pytest.fixture
async def watch(relay: Relay, postgres, redis, log, tables, monkeypatch: pytest.MonkeyPatch) -> Republisher:
    """What the engine of this test holds has been told to it."""
    monkeypatch.setattr(republish, "LEASE_S", 0)
    for stream in republish.NAMES:
        await redis.set(f"{stream}:published_to:outbox_test", (await identity(redis, stream)).text())
    async with postgres.begin() as connection:
        await emit_events(connection, tables[0], [event(1), event(2)])
    await relay.relay_batch()
    return Republisher(postgres, log, tables[0])


async def test_a_log_that_is_where_it_was_is_left_alone(watch: Republisher) -> None:
    assert [await watch.check(), await watch.check()] == [0, 0]


@pytest.mark.parametrize("lost", ["everything", "the last of it"])
async def test_another_engine_is_told_again(watch: Republisher, relay: Relay, redis, log, lost: str) -> None:
    await redis.flushall()
    if lost == "the last of it":
        await redis.set(MARK, "another/engine")
    assert await watch.check() == 2
    assert await relay.relay_batch() == 2
    assert await logged(log) == [1, 2]
    await watch.check()  # whatever was on its way when the engine changed
    assert await redis.get(MARK) == (await identity(redis, MARK)).text().encode()
    await relay.relay_batch()
    assert await watch.check() == 0
    assert await relay.relay_batch() == 0
