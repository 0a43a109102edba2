"""Rollout: a share of the fans goes through the room; the others bypass the line and are ready at once."""

from features.rollout.rules import outside
from tests.queue.conftest import EVENT, ROOM_URL, Queue, put_event

FANS = [f"fan-{n}" for n in range(1, 41)]


def bypassing(percent: float) -> list[str]:
    return [fan for fan in FANS if outside(EVENT, fan, percent)]


def test_raising_the_rollout_adds_fans_and_removes_none():
    fans = [f"holder-{n}" for n in range(2000)]
    inside = [{fan for fan in fans if not outside("show", fan, percent)} for percent in (0, 10, 50, 100)]
    assert [len(part) for part in (inside[0], inside[3])] == [0, 2000]
    assert inside[1] < inside[2] < inside[3]
    assert 140 < len(inside[1]) < 260
    assert inside[1] != {fan for fan in fans if not outside("another show", fan, 10)}


async def test_a_fan_outside_the_rollout_is_ready_at_once_and_the_line_moves_on(queue: Queue):
    await queue.open(rollout_percent=50, rate_per_s=0)
    places = dict(zip(FANS, await queue.join(*FANS), strict=True))
    assert {fan for fan, place in places.items() if place.status == "ready"} == set(bypassing(50))
    assert {place.status for fan, place in places.items() if fan not in bypassing(50)} == {"waiting"}
    fan = bypassing(50)[-1]
    [claim] = await queue.claim((places[fan].join_seq, fan))
    assert claim.word == "admitted"
    await queue.configure(rate_per_s=1000)
    await queue.tick()
    assert len(await queue.called()) == len(FANS) - 1, "every fan in the line is called once"
    assert await queue.violations() == []


async def test_the_invariants_allow_calls_beyond_the_head_only_to_fans_who_bypass_the_line(queue: Queue):
    await queue.open(rollout_percent=50, rate_per_s=0)
    await queue.join(*FANS)
    await queue.configure(rollout_percent=100)
    assert await queue.violations() == []
    in_line = next(n for n, fan in enumerate(FANS, 1) if fan not in bypassing(50))
    await queue.sql(
        "INSERT INTO queue.admission (event_id, epoch, lane, join_seq, call, state) VALUES (:e, 1, 0, :n, 1, 'missed')",
        e=EVENT, n=in_line,
    )  # fmt: skip
    assert [violation.invariant for violation in await queue.violations()] == ["5 nobody is called beyond the head"]


async def test_fans_who_bypass_the_line_keep_to_max_active(queue: Queue):
    await queue.open(rollout_percent=0, rate_per_s=0, max_active=3)
    places = await queue.join(*FANS[:5])
    assert [place.status for place in places] == ["ready"] * 3 + ["waiting"] * 2
    assert await queue.leave((1, FANS[0])) == ["left"]
    assert await queue.status((4, FANS[3]), (5, FANS[4])) == ["ready", "waiting"]


async def test_lowering_the_rollout_to_zero_calls_waiting_fans_at_once(queue: Queue):
    await queue.open(rate_per_s=0)
    await queue.join(*FANS[:3])
    assert await queue.status((1, FANS[0]), (2, FANS[1]), (3, FANS[2])) == ["waiting"] * 3
    await queue.configure(rollout_percent=0)
    assert await queue.status((1, FANS[0]), (2, FANS[1]), (3, FANS[2])) == ["ready"] * 3
    await queue.tick()
    assert len(await queue.called()) == 3


async def test_a_paused_room_calls_no_fan_outside_the_rollout(queue: Queue):
    await queue.open(rollout_percent=0, rate_per_s=0)
    await queue.transition("pause")
    [place] = await queue.join("fan-1")
    assert place.status == "waiting"


async def test_where_the_feature_is_off_a_room_with_a_share_is_refused_by_name(app, admin):
    await put_event(admin)
    app.state.settings = app.state.settings.model_copy(update={"features_off": frozenset({"rollout"})})
    refused = await put_event(admin, rollout_percent=50), await admin.patch(ROOM_URL, json={"rollout_percent": 50})
    assert {each.json()["detail"] for each in refused} == {"rollout_percent: the feature rollout is switched off here."}
