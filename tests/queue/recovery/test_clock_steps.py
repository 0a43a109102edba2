"""Clocks step while fans are called and admitted: a call or a session lasts until the time that the fan was given."""

import jwt
import pytest

from shared.process.clock_offsets import read_clocks
from shared.runtime.clock import now_ms
from shared.security.tokens import PassReader
from tests.inventory.clocks import HOUR_MS, Steps
from tests.inventory.clocks import steps as steps  # noqa: PLC0414 - a fixture
from tests.queue.conftest import Queue

STEP_MS, CLAIM_S, SESSION_S = 55_000, 120, 900
pytestmark = pytest.mark.usefixtures("own_database")


@pytest.fixture
def line(steps: Steps, queue: Queue) -> Queue:
    """A queue that connects after the database's clock was made adjustable."""
    return queue


@pytest.mark.parametrize("clock", ["redis", "postgres", "process"])
async def test_a_call_and_a_session_last_until_their_given_time_although_a_clock_steps(
    steps: Steps, line: Queue, clock: str
) -> None:
    await line.open(claim_window_s=CLAIM_S, session_s=SESSION_S)
    await line.join_fans(2)
    await line.tick()
    [first] = await line.claim((1, "fan-1"))
    assert first.word == "admitted"
    await steps.set(clock, STEP_MS)
    own_step_s = STEP_MS / 1000 if clock == "process" else 0  # `tick` moves Redis' clock relative to the process's
    later_s = CLAIM_S - 20 + own_step_s
    for noticed in (False, True):
        if noticed:
            await read_clocks(line.state.line.clocks, line.db, line.redis)
        await line.tick(0 if noticed else later_s)
        assert await line.called() == [2], "the call lasts until its deadline"
    [second] = await line.claim((2, "fan-2"))
    assert second.word == "admitted"
    await line.tick(SESSION_S - CLAIM_S)
    await line.drain_sessions()
    assert line.inventory.ended == [], "a pass is valid until it expires"
    await line.tick(STEP_MS / 1000 + 60)
    await line.drain_sessions()
    assert [session.holder for ending in line.inventory.ended for session in ending.sessions][:1] == ["fan-1"]


async def test_a_pass_issued_while_redis_is_ahead_is_valid_at_once(steps: Steps, line: Queue) -> None:
    await line.open(session_s=SESSION_S)
    await steps.set("redis", STEP_MS)
    await line.join_fans(1)
    await line.tick()
    [claimed] = await line.claim((1, "fan-1"))
    assert claimed.admission is not None
    keys = line.state.claims.pass_keys.public()
    assert PassReader(keys).read(claimed.admission, now_s=now_ms() / 1000).holder == "fan-1"
    payload = jwt.decode(claimed.admission, options={"verify_signature": False})
    assert payload["nbf"] <= now_ms() / 1000, "other sites accept it, too"


async def test_calls_go_on_soon_after_redis_was_an_hour_ahead(steps: Steps, line: Queue) -> None:
    await line.open(rate_per_s=10, burst=10)
    await line.join_fans(60)
    await steps.set("redis", HOUR_MS)
    await line.heartbeat(*range(1, 61))
    await line.tick()
    before = len(await line.called())
    assert 0 < before < 60
    await steps.set("redis", 0)
    for _ in range(10):
        await line.heartbeat(*range(1, 61))
        await line.tick(0.4)
    assert len(await line.called()) > before, "calls go on once the clock is right"
    assert int((await line.room_hash())["assume_live_until_ms"]) < now_ms() + HOUR_MS / 2


async def test_nobody_is_passed_over_because_redis_steps_forward(steps: Steps, line: Queue) -> None:
    """A random sale found it: by a clock that was two minutes ahead all heartbeats were old."""
    await line.open(fans=10, rate_per_s=0)
    await line.end_assumed_liveness()
    await line.heartbeat(*range(1, 11))
    await line.tick()
    await steps.set("redis", 120_000)
    await line.configure(rate_per_s=50.0)
    await line.tick()
    assert await line.called() == list(range(1, 11))


async def test_a_place_that_is_being_inserted_is_waited_for_although_redis_steps_forward(
    steps: Steps, line: Queue
) -> None:
    await line.open()
    async with line.blocked_join("slow") as joining:
        await line.join("quick")
        await line.tick()
        await steps.set("redis", 120_000)
        assert (await line.tick()).lanes[0].head_seq == 0
    await joining


async def test_absent_fans_are_passed_over_again_once_redis_is_right(steps: Steps, line: Queue) -> None:
    await line.open(fans=5, rate_per_s=0)
    await line.end_assumed_liveness()
    await steps.set("redis", HOUR_MS)
    await line.tick()
    await steps.set("redis", 0)
    await line.tick()
    await line.end_assumed_liveness()
    await line.heartbeat(5)
    await line.configure(rate_per_s=50.0)
    await line.tick()
    assert await line.called() == [5]
