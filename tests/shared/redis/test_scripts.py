"""Lua scripts are called by the parameters that their headers declare.

That of snapshots stores and publishes a frame in one step, with the version of the frame before it.
"""

from typing import Any

import pytest
from redis.asyncio import Redis

from shared.contracts.frames import SectionCounts, StockFrame, log_key, stock_channel
from shared.messaging.snapshots import FRAMES_MAX, FRAMES_MIN, LOG_BYTES_MAX, LOG_KEPT_S, SnapshotPublisher
from shared.redis.client import Script

SUM = """-- Adds numbers to a counter, once per call id.
--
-- KEYS[1] counter string the counter
-- KEYS[2] calls   set    ids of earlier calls
-- ARGV[1] call_id string id of this call
-- ARGV[2+] numbers int   numbers to add
local counter, calls = KEYS[1], KEYS[2]
if redis.call('SADD', calls, ARGV[1]) == 1 then
  for i = 2, #ARGV do redis.call('INCRBY', counter, ARGV[i]) end
end
return {'ok', tonumber(redis.call('GET', counter))}
"""


def script() -> Script:
    return Script("sum", SUM)


async def test_a_script_is_called_by_the_names_in_its_header(redis) -> None:
    assert await script()(redis, counter="c", calls="s", call_id="1", numbers=[1, 2, 3]) == [b"ok", 6]


async def test_a_script_is_loaded_again_after_redis_lost_it(redis) -> None:
    await script()(redis, counter="c", calls="s", call_id="1", numbers=[1])
    await redis.script_flush()
    calls: list[dict[str, Any]] = [
        {"counter": "c", "calls": "s", "call_id": str(n), "numbers": [n]} for n in range(2, 5)
    ]
    assert [answer[1] for answer in await script().many(redis, calls)] == [3, 6, 10]


@pytest.mark.parametrize(
    "arguments",
    [
        {"counter": "c", "calls": "s", "call_id": "1"},
        {"counter": "c", "calls": "s", "call_id": "1", "numbers": [1], "more": 1},
        {"counter": "c", "calls": "s", "call_id": "1", "numbers": 1},
        {"counter": ["c"], "calls": "s", "call_id": "1", "numbers": [1]},
    ],
)
def test_a_call_with_wrong_arguments_is_not_sent(arguments) -> None:
    with pytest.raises(TypeError):
        script().bind(arguments)


def test_a_header_that_skips_a_key_is_refused() -> None:
    with pytest.raises(ValueError, match="number its KEYS from 1"):
        Script("broken", "-- KEYS[2] second string no first\nreturn 1\n")


CHANNEL = stock_channel("show")


def stock(version: int, *, sections: int = 1) -> StockFrame:
    counts = [SectionCounts(section_id=f"S{n}", available=n, held=0, sold=0, at_ms=version) for n in range(sections)]
    return StockFrame(event_id="show", epoch=1, version=version, ready=True, at_ms=version, sections=counts)


async def frames(redis: Redis) -> list[StockFrame]:
    stored = (await SnapshotPublisher(redis).log([CHANNEL]))[CHANNEL]
    return [StockFrame.model_validate_json(text) for text in stored]


async def test_each_frame_names_the_frame_before_it_also_from_another_publisher(redis: Redis):
    for version, sharded in ((5, False), (7, None), (6, True)):
        publisher = SnapshotPublisher(redis)
        publisher._sharded = sharded
        await publisher.publish(CHANNEL, stock(version))
    assert [(frame.version, frame.after) for frame in await frames(redis)] == [(5, None), (7, 5), (6, 7)]


async def test_a_frame_is_published_in_one_round_trip(redis: Redis):
    publisher = SnapshotPublisher(redis)
    await publisher.publish(CHANNEL, stock(1))
    await redis.config_resetstat()
    await publisher.publish(CHANNEL, stock(2))
    calls = {name: row["calls"] for name, row in (await redis.info("commandstats")).items()}
    assert calls.get("cmdstat_evalsha") == 1
    assert calls.keys() <= {
        f"cmdstat_{verb}" for verb in ("evalsha", "xrevrange", "xadd", "expire", "publish", "config|resetstat", "info")
    }


async def test_the_log_of_frames_is_bounded_and_expires(redis: Redis):
    publisher = SnapshotPublisher(redis)
    for version in range(1, FRAMES_MAX + 11):
        await publisher.publish(CHANNEL, stock(version))
    assert [frame.version for frame in await frames(redis)] == list(range(11, FRAMES_MAX + 11))
    assert 0 < await redis.ttl(log_key(CHANNEL)) <= LOG_KEPT_S
    for version in range(100, 110):
        await publisher.publish(CHANNEL, stock(version, sections=500))
    kept = await frames(redis)
    assert FRAMES_MIN <= len(kept) < 10
    assert sum(len(frame.model_dump_json()) for frame in kept) < LOG_BYTES_MAX * 1.1
