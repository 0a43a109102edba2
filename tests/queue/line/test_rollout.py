"""Rollout: a share of fans goes through the room; who is outside it is ready at once, and the line goes on as ever."""

from services.queue.rooms.invariants import check_invariants
from shared.rules.rollout import outside
from tests.queue.conftest import EVENT, Queue

FANS = [f"fan-{n}" for n in range(1, 41)]


def bypassing(percent: float) -> list[str]:
    return [fan for fan in FANS if outside(EVENT, fan, percent)]


def test_a_side_is_kept_and_raising_the_share_only_adds_to_it():
    crowd = [f"holder-{n}" for n in range(2000)]
    through = [{fan for fan in crowd if not outside("show", fan, percent)} for percent in (0, 10, 50, 100)]
    assert [len(side) for side in (through[0], through[3])] == [0, 2000]
    assert through[1] < through[2] < through[3]
    assert 140 < len(through[1]) < 260
    assert through[1] != {fan for fan in crowd if not outside("another show", fan, 10)}


async def test_a_fan_outside_the_share_is_ready_at_once_and_the_line_goes_on(queue: Queue):
    await queue.open(rollout_percent=50, rate_per_s=0)
    places = dict(zip(FANS, await queue.join(*FANS), strict=True))
    assert {fan for fan, place in places.items() if place.status == "ready"} == set(bypassing(50))
    assert {place.status for fan, place in places.items() if fan not in bypassing(50)} == {"waiting"}
    fan = bypassing(50)[-1]
    [claim] = await queue.claim((places[fan].join_seq, fan))
    assert claim.word == "admitted"
    await queue.configure(rate_per_s=1000)
    await queue.tick()
    assert len(await queue.called()) == len(FANS) - 1, "everybody in the line is called once"
    lines = await check_invariants(
        queue.db,
        queue.redis,
        await queue.state.rooms.read(EVENT),
        clock_offset_ms=queue.state.line.clock_offset_ms,
    )
    assert [line for line in lines if not line.holds] == []


async def test_the_audit_knows_a_call_beyond_the_head_from_one_bypassing_the_line(queue: Queue):
    await queue.open(rollout_percent=50, rate_per_s=0)
    await queue.join(*FANS)
    await queue.configure(rollout_percent=100)
    room = await queue.state.rooms.read(EVENT)
    assert all(
        line.holds
        for line in await check_invariants(
            queue.db, queue.redis, room, clock_offset_ms=queue.state.line.clock_offset_ms
        )
    )
    within = next(n for n, fan in enumerate(FANS, 1) if fan not in bypassing(50))
    await queue.sql(
        "INSERT INTO queue.admission (event_id, epoch, lane, join_seq, call, state) VALUES (:e, 1, 0, :n, 1, 'missed')",
        e=EVENT, n=within,
    )  # fmt: skip
    broken = [
        line.invariant
        for line in await check_invariants(
            queue.db, queue.redis, room, clock_offset_ms=queue.state.line.clock_offset_ms
        )
        if not line.holds
    ]
    assert broken == ["5 nobody is called beyond the head"]


async def test_no_rollout_brings_more_fans_inside_than_may_be(queue: Queue):
    await queue.open(rollout_percent=0, rate_per_s=0, max_active=3)
    places = await queue.join(*FANS[:5])
    assert [place.status for place in places] == ["ready"] * 3 + ["waiting"] * 2
    assert await queue.leave((1, FANS[0])) == ["left"]
    assert await queue.status((4, FANS[3]), (5, FANS[4])) == ["ready", "waiting"]


async def test_taking_the_rollout_back_frees_who_waits(queue: Queue):
    await queue.open(rate_per_s=0)
    await queue.join(*FANS[:3])
    assert await queue.status((1, FANS[0]), (2, FANS[1]), (3, FANS[2])) == ["waiting"] * 3
    await queue.configure(rollout_percent=0)
    assert await queue.status((1, FANS[0]), (2, FANS[1]), (3, FANS[2])) == ["ready"] * 3
    await queue.tick()
    assert len(await queue.called()) == 3


async def test_a_closed_or_paused_room_calls_nobody_bypassing_the_line_either(queue: Queue):
    await queue.open(rollout_percent=0, rate_per_s=0)
    room = await queue.state.rooms.transition(EVENT, "pause", actor="test", reason=None)
    await queue.state.gatekeeper.apply_config(room)
    [place] = await queue.join("fan-1")
    assert place.status == "waiting"
