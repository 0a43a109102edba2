"""The header of a script is its signature."""

from typing import Any

import pytest

from shared.redis.scripts import Script

SUM = """-- Adds what it is given to a counter, once per call id.
--
-- KEYS[1] counter string the counter
-- KEYS[2] calls   set    ids seen
-- ARGV[1] call_id string which call this is
-- ARGV[2+] numbers int   what to add
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


async def test_an_engine_that_forgot_the_script_gets_it_again(redis) -> None:
    await script()(redis, counter="c", calls="s", call_id="1", numbers=[1])
    await redis.script_flush()
    calls: list[dict[str, Any]] = [
        {"counter": "c", "calls": "s", "call_id": str(n), "numbers": [n]} for n in range(2, 5)
    ]
    assert [answer[1] for answer in await script().many(redis, calls)] == [3, 6, 10]


@pytest.mark.parametrize(
    "named",
    [
        {"counter": "c", "calls": "s", "call_id": "1"},
        {"counter": "c", "calls": "s", "call_id": "1", "numbers": [1], "more": 1},
        {"counter": "c", "calls": "s", "call_id": "1", "numbers": 1},
        {"counter": ["c"], "calls": "s", "call_id": "1", "numbers": [1]},
    ],
)
def test_a_wrong_call_is_refused_before_the_engine_is_asked(named) -> None:
    with pytest.raises(TypeError):
        script().bind(named)


def test_a_header_with_a_hole_is_refused() -> None:
    with pytest.raises(ValueError, match="number its KEYS from 1"):
        Script("broken", "-- KEYS[2] second string no first\nreturn 1\n")
