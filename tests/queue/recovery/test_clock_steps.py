"""Clocks are set forward and back while fans are called and inside: what they were told is theirs until then."""

import jwt
import pytest

from shared.runtime.clock import now_ms
from shared.security.tokens import PassReader
from tests.inventory.clocks import HOUR_MS, Steps
from tests.inventory.clocks import steps as steps  # noqa: PLC0414 - a fixture
from tests.queue.conftest import Queue

STEP_MS, CLAIM_S, SESSION_S = 55_000, 120, 900
pytestmark = pytest.mark.asyncio


@pytest.fixture
def line(steps: Steps, queue: Queue) -> Queue:
    """Connected after the database's clock can be set."""
    return queue


async def look(queue: Queue) -> None:
    await queue.state.line.clocks.refresh(queue.db, queue.redis)


@pytest.mark.parametrize("which", ["redis", "postgres", "process"])
async def test_a_call_and_a_session_last_until_the_time_they_were_told_although_a_clock_steps(
    steps: Steps, line: Queue, which: str
) -> None:
    await line.open(claim_window_s=CLAIM_S, session_s=SESSION_S)
    await line.crowd(2)
    await line.tick()
    [first] = await line.claim((1, "fan-1"))
    assert first.word == "admitted"
    await steps.set(which, STEP_MS)
    later_s = CLAIM_S - 20 + (STEP_MS / 1000 if which == "process" else 0)  # `later` goes by the process's clock
    for noticed in (False, True):
        if noticed:
            await look(line)
        await line.tick(0 if noticed else later_s)
        assert await line.called() == [2], "who was told so may still come"
    [second] = await line.claim((2, "fan-2"))
    assert second.word == "admitted"
    await line.tick(SESSION_S - CLAIM_S)
    await line.sessions_ended()
    assert line.inventory.ended == [], "a pass is good until the time it says"
    await line.tick(STEP_MS / 1000 + 60)
    await line.sessions_ended()
    assert [s.holder for question in line.inventory.ended for s in question.sessions][:1] == ["fan-1"]


async def test_a_pass_given_while_redis_is_ahead_is_good_at_once(steps: Steps, line: Queue) -> None:
    await line.open(session_s=SESSION_S)
    await steps.set("redis", STEP_MS)
    await line.crowd(1)
    await line.tick()
    [claimed] = await line.claim((1, "fan-1"))
    assert claimed.admission is not None
    keys = line.state.claims.pass_keys.public()
    assert PassReader(keys).read(claimed.admission, now_s=now_ms() / 1000).holder == "fan-1"
    told = jwt.decode(claimed.admission, options={"verify_signature": False})
    assert told["nbf"] <= now_ms() / 1000, "nor does another origin refuse it"


async def test_an_hour_that_was_wrong_is_not_sat_out(steps: Steps, line: Queue) -> None:
    await line.open(rate_per_s=10, burst=10)
    await line.crowd(60)
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
