"""One fan from the join to the pass."""

from tests.queue.conftest import Queue


async def test_a_fan_joins_is_called_and_gets_a_pass(queue: Queue):
    await queue.open()
    joined = await queue.join_fans(3)
    assert [place.join_seq for place in joined] == [1, 2, 3]
    assert [place.word for place in joined] == ["joined"] * 3
    frame = await queue.tick()
    assert frame.state == "open"
    assert frame.lanes[0].head_seq == 3
    assert await queue.status((1, "fan-1")) == ["ready"]
    [claim] = await queue.claim((1, "fan-1"))
    assert claim.word == "admitted"
    assert claim.jti == "1-0-1-1"
    assert await queue.status((1, "fan-1"), (2, "fan-2")) == ["admitted", "ready"]
