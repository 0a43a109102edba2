"""The line's Lua scripts: their headers declare what they take, and what each checks before it does anything."""

from collections.abc import Awaitable, Callable

import pytest
from redis.exceptions import ResponseError

from services.queue import redis_keys
from services.queue.admission.gatekeeper import TICK
from services.queue.line import redis_line
from services.queue.line.redis_line import LineNotReady
from services.queue.line.repository import LineRepository
from shared.errors.problems import StaleEpoch
from shared.redis.client import Script
from tests.queue.conftest import EVENT, ROOM_KEY, Queue

LOSSES: dict[str, Callable[[Queue], Awaitable[object]]] = {
    "rebuilt": lambda queue: queue.redis.hset(ROOM_KEY, "ready", 0),
    "reset": lambda queue: queue.redis.hset(ROOM_KEY, "epoch", 2),
    "incomplete": lambda queue: queue.redis.delete(redis_keys.misses(EVENT, 1)),
}


def test_every_script_binds_exactly_its_header():
    scripts = [*(value for value in vars(redis_line).values() if isinstance(value, Script)), TICK]
    assert len(scripts) == 14
    for script in scripts:
        values = {slot.name: ["1"] if slot.is_list else "1" for slot in (*script.keys, *script.arguments)}
        keys, arguments = script.bind(values)
        assert f"KEYS[{len(keys)}]" in script.source or script.keys[-1].is_list
        with pytest.raises(TypeError):
            script.bind({**values, "unknown": "1"})
        assert arguments
        assert "clock(" not in script.source.removeprefix(redis_line.PRELUDE) or "clock_offset_ms" in values


@pytest.mark.parametrize("loss", LOSSES)
async def test_no_pass_is_given_by_a_room_that_is_rebuilt_or_reset_or_incomplete(queue: Queue, loss: str):
    await queue.open_and_call("ann")
    await LOSSES[loss](queue)
    with pytest.raises((LineNotReady, StaleEpoch)):
        await queue.state.line.claim(EVENT, 1, 0, [1])


async def test_a_session_begins_no_earlier_than_the_last_tick(queue: Queue):
    """Although Redis' clock was set back since."""
    await queue.open_and_call("ann", session_s=900)
    last_s = int((await queue.room_hash())["last_ms"]) // 1000
    queue.advance_clock(-30)
    _, [claim] = await queue.state.line.claim(EVENT, 1, 0, [1])
    assert claim.until_ms >= (last_s + 900) * 1000


@pytest.mark.parametrize("script", ["get_status", "claim"])
async def test_a_script_refuses_more_places_than_its_limit(queue: Queue, script: str):
    await queue.open(rate_per_s=0)
    call = getattr(queue.state.line, script)
    await call(EVENT, 1, 0, range(1, 1025))
    with pytest.raises(ResponseError, match="too many"):
        await call(EVENT, 1, 0, range(1, 1026))


async def test_an_older_configuration_changes_nothing_in_redis(queue: Queue):
    await queue.open()
    older = await queue.state.rooms.get(EVENT)
    await queue.configure(rate_per_s=7)
    await queue.state.line.configure(older)
    assert float((await queue.room_hash())["rate_per_s"]) == 7


async def test_saved_heads_never_go_back(queue: Queue):
    """Two gatekeepers may save in another order than they ticked."""
    await queue.open()
    for head in (5, 3):
        async with queue.db.begin() as connection:
            at = {"lane": 0, "head_seq": head, "calls": 10 - head, "contended_calls": 0, "fair_share": 0.0}
            await LineRepository(connection, EVENT, 1).save_heads([at | {"contention_periods": 0}])
    assert [row.head_seq for row in await queue.sql("SELECT head_seq FROM queue.lane")] == [5]
