"""The headers of the line's Lua scripts: they declare exactly the keys and arguments that a script takes."""

import pytest

from services.queue.line import redis_line
from shared.redis.scripts import Script


def test_every_script_binds_exactly_its_header():
    scripts = [value for value in vars(redis_line).values() if isinstance(value, Script)]
    assert len(scripts) == 14
    for script in scripts:
        values = {slot.name: ["1"] if slot.is_list else "1" for slot in (*script.keys, *script.arguments)}
        keys, arguments = script.bind(values)
        assert f"KEYS[{len(keys)}]" in script.source or script.keys[-1].is_list
        with pytest.raises(TypeError):
            script.bind({**values, "unknown": "1"})
        assert arguments
        assert "\nlocal time = redis.call('TIME')" not in script.source or "clock_offset_ms" in values
