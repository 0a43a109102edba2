"""Lua scripts are called by the parameters that their headers declare."""

from typing import Any

import pytest

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
