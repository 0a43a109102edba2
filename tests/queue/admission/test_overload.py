"""The overload guard throttles soon, never stops the line, and gives the rate back; autotune keeps to its bounds."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from services.queue.admission import overload
from services.queue.admission.autotune import target_rate
from services.queue.admission.overload import classify
from shared.contracts.event_file import RoomPart
from shared.contracts.frames import FRAME_STALE_S, LaneHead, LineFrame, LoadFrame, Throttled, load_channel
from shared.contracts.room_options import PaceRules
from shared.redis.scripts import Script
from shared.runtime.clock import now_ms
from tests.queue.conftest import EVENT, Queue
from tests.support.wait import wait_until


def load(service: str = "inventory", process: str = "i-1", **facts: Any) -> LoadFrame:
    well = {"writes": 100, "refused": 0, "p95_ms": 20.0, "pool_full_s": 0.0}
    return LoadFrame.model_validate({"service": service, "process": process, "at_ms": now_ms(), **well, **facts})


SLOW: dict[str, Any] = {"p95_ms": 4000.0}


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        ([{}], None),
        ([], None),
        ([SLOW], "slow"),
        ([{"writes": 4, **SLOW}], None),
        ([SLOW, *[{}] * 9], None),
        ([{"refused": 2}], None),
        ([{"refused": 5}], "refuses"),
        ([{"writes": 0, "refused": 3}], "refuses"),
        ([{"writes": 1000, "refused": 9}], None),
        ([{"pool_full_s": 3.0}], "full"),
        ([{"pool_full_s": 3.0}, {}, {}], None),
        ([{"pool_full_s": 9.0, "refused": 50, **SLOW}], "refuses"),
    ],
)
def test_one_slow_request_is_no_overload(facts: list[dict[str, Any]], word: str | None) -> None:
    frames = [load(process=f"i-{n}", **one) for n, one in enumerate(facts)]
    assert classify(frames, slow_ms=1500) == word


@pytest.fixture
def guarded(queue: Queue) -> Callable[..., Any]:
    """Shows a load frame and lets the guard and the gatekeeper have their turns."""

    async def turn(after_s: float = 2.0, *, shown: LoadFrame | None = None) -> LineFrame:
        steering = queue.state.control_loop
        if shown is not None:
            steering.throttle.load_cache.on_frame(shown.model_dump_json().encode())
        queue.later(after_s)
        await steering.run_once()
        return await queue.state.gatekeeper.tick(EVENT)

    return turn


async def test_overload_throttles_within_thirty_seconds_and_the_rate_comes_back(queue: Queue, guarded) -> None:
    await queue.open(rate_per_s=100, burst=1)
    await queue.crowd(10)
    first = await guarded(shown=load(**SLOW))
    assert first.throttled == Throttled(factor=0.7, reason="inventory-slow")
    assert first.rate_per_s == pytest.approx(70)
    shares = [(await guarded(shown=load("orders", "o-1", refused=90))).rate_per_s for _ in range(12)]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == pytest.approx(10), "the floor: the line never stops"
    well = load(), load("orders", "o-1")
    for shown in well:
        await guarded(0.1, shown=shown)
    easing = await guarded(20)
    assert easing.throttled is not None
    assert easing.throttled.reason == "easing"
    assert 30 < easing.rate_per_s < 60
    back = await guarded(60)
    assert (back.rate_per_s, back.throttled) == (100, None)


@pytest.mark.parametrize("guarded_by", [True, False])
async def test_two_guards_step_down_as_one(
    queue: Queue, another, monkeypatch: pytest.MonkeyPatch, guarded_by: bool
) -> None:
    if not guarded_by:
        source = overload.ADJUST_THROTTLE.source.replace("if now - moved >= tonumber(ARGV[6]) then", "if true then")
        monkeypatch.setattr(overload, "ADJUST_THROTTLE", Script("adjust_throttle", source))
    await queue.open(rate_per_s=100)
    other = another()
    await other.state.rooms.refresh()
    queue.later(2.0)
    other.state.line.clock_offset_ms = queue.state.line.clock_offset_ms
    for one in (queue, other, queue, other):
        one.state.control_loop.throttle.load_cache.on_frame(load(**SLOW).model_dump_json().encode())
        await one.state.control_loop.run_once()
    assert ((await queue.room_hash())["throttle_factor"] == "0.7000") == guarded_by


@pytest.mark.parametrize("guarded_by", [True, False])
async def test_what_is_stale_throttles_nobody(
    queue: Queue, guarded, monkeypatch: pytest.MonkeyPatch, guarded_by: bool
) -> None:
    await queue.open(rate_per_s=100)
    await guarded(shown=load(**SLOW))
    loop = asyncio.get_running_loop()
    later_s = loop.time() + FRAME_STALE_S + 1
    if guarded_by:
        monkeypatch.setattr(loop, "time", lambda: later_s)
    shown = [(await guarded(10)).rate_per_s for _ in range(8)][-1]
    monkeypatch.undo()
    assert (shown == 100) == guarded_by


@pytest.mark.parametrize("mode", ["observe", "off"])
async def test_a_guard_that_observes_only_says_what_it_would_do(queue: Queue, guarded, mode: str) -> None:
    await queue.open(rate_per_s=100, pace={"guard": mode})
    frame = [await guarded(shown=load(**SLOW)) for _ in range(5)][-1]
    assert (frame.rate_per_s, frame.throttled) == (100, None)
    seen = queue.state.control_loop.throttle.observed.get(EVENT)
    assert (seen.factor < 0.4 if seen else None) == (True if mode == "observe" else None)


async def test_switching_the_guard_off_gives_the_rate_back_at_once(queue: Queue, guarded) -> None:
    await queue.open(rate_per_s=100)
    assert (await guarded(shown=load(**SLOW))).rate_per_s == pytest.approx(70)
    await queue.configure(pace=PaceRules(guard="off"))
    assert (await guarded(0.2, shown=load(**SLOW))).rate_per_s == 100


async def test_a_throttled_line_calls_no_faster_than_it_says(queue: Queue, guarded) -> None:
    await queue.open(rate_per_s=100, burst=1, max_active=100_000)
    await queue.crowd(900)
    while (await guarded(shown=load(**SLOW))).rate_per_s > 10:
        pass
    before, began_s = len(await queue.called()), time.monotonic()
    for _ in range(10):
        queue.later(1.0)
        await queue.state.gatekeeper.tick(EVENT)
    took_s = 10 + time.monotonic() - began_s
    assert len(await queue.called()) - before in range(95, int(10 * took_s) + 6), "10 s at a tenth of 100"


async def test_load_shown_on_pub_sub_is_heard_and_garbage_is_not(queue: Queue) -> None:
    board = queue.state.control_loop.throttle.load_cache
    listening = asyncio.create_task(board.listen())
    try:

        async def heard() -> bool:
            await queue.redis.publish(load_channel("inventory"), b"{}")
            await queue.redis.publish(load_channel("inventory"), load(**SLOW).model_dump_json())
            return board.overload(slow_ms=1500) == "inventory-slow"

        await wait_until(heard)
        assert board.overload(slow_ms=5000) is None, "each room has its own idea of slow"
    finally:
        listening.cancel()


@pytest.mark.parametrize("guarded_by", [True, False])
async def test_after_a_loss_the_rate_ramps_up_from_a_fifth(queue: Queue, without, guarded_by: bool) -> None:
    if not guarded_by:
        without("tick", "if number('ramp_ms') > 0 then", "if false then")
    await queue.open(rate_per_s=100, burst=1, max_active=100_000)
    await queue.crowd(50)
    await queue.redis.flushall()
    queue.state.recovery._ramp = True
    await queue.state.recovery.rebuild(EVENT)
    queue.time_ms = int((await queue.room_hash())["ramp_ms"])  # however long it took to get here
    frames = [await queue.tick(s) for s in (0.2, 14.8, 0.2, 16.0, 0.2)][::2]  # a turn obeys the rate it began at
    factors = [frame.throttled.factor if frame.throttled else 1.0 for frame in frames]
    assert (factors == [pytest.approx(0.2, abs=0.02), pytest.approx(0.6, abs=0.02), 1.0]) == guarded_by
    assert not guarded_by or (frames[0].throttled and frames[0].throttled.reason == "recovering")


# -- autotune ----------------------------------------------------------------------------------------------------------

TUNED = PaceRules(autotune="on", rate_min=20, rate_max=120)


def asking(**facts: Any) -> LineFrame:
    return LineFrame.model_validate({
        "event_id": EVENT, "epoch": 1, "version": 1, "ready": True, "at_ms": 1, "state": "open", "rate_per_s": 100.0,
        "lanes": {0: LaneHead(head_seq=0, tail_seq=1000)}, "calls_per_s": 99.0, **facts,
    })  # fmt: skip


@pytest.mark.parametrize(
    ("rate", "facts", "overload", "wanted"),
    [
        (100, {}, None, 105),
        (118, {"calls_per_s": 118.0}, None, 120),
        (100, {}, "orders-slow", 80),
        (22, {}, "orders-slow", 20),
        (100, {"calls_per_s": 50.0}, None, 100),
        (100, {"full": True}, None, 100),
        (100, {"lanes": {0: LaneHead(head_seq=9, tail_seq=9)}}, None, 100),
        (100, {"state": "paused"}, None, 100),
        (100, {"throttled": Throttled(factor=0.5, reason="easing")}, None, 100),
        (500, {"calls_per_s": 1.0}, None, 120),
        (5, {"calls_per_s": 1.0}, None, 20),
    ],
)
def test_autotune_moves_within_its_bounds_and_only_for_a_reason(rate, facts, overload, wanted) -> None:
    assert target_rate(rate, TUNED, asking(**facts), overload) == wanted


@pytest.mark.parametrize("guarded_by", [True, False])
async def test_autotune_moves_once_in_ten_seconds_and_is_audited(queue: Queue, guarded, guarded_by: bool) -> None:
    if not guarded_by:
        queue.state.control_loop.autotune.interval_s = 0
    await queue.open(rate_per_s=100, pace={"guard": "off", "autotune": "on", "rate_min": 10, "rate_max": 200})
    for _ in range(3):
        await guarded(shown=load(**SLOW))
    rows = await queue.sql("SELECT actor, action, reason, after FROM queue.room_audit_log WHERE actor = 'autotune'")
    assert (len(rows) == 1) == guarded_by
    assert (rows[0].action, rows[0].reason, rows[0].after["rate_per_s"]) == ("change", "inventory-slow", 80)


async def test_autotune_that_observes_sets_nothing(queue: Queue, guarded) -> None:
    await queue.open(rate_per_s=100, pace={"guard": "off", "autotune": "observe", "rate_min": 10, "rate_max": 200})
    await guarded(shown=load(**SLOW))
    assert queue.state.control_loop.autotune.target_rates == {EVENT: 80}
    assert (await queue.state.rooms.read(EVENT)).rate_per_s == 100


def test_switches_are_read_as_people_write_them() -> None:
    part = RoomPart.model_validate({"pace": {"guard": False, "autotune": True, "rate_min": 1, "rate_max": 2}})
    assert (part.pace.guard, part.pace.autotune) == ("off", "on")
    for wrong in ({"autotune": "on"}, {"rate_min": 5, "rate_max": 2}, {"guard": "maybe"}, {"guard_floor": 0}):
        with pytest.raises(ValueError, match=r"autotune needs|must not be above|Input should"):
            PaceRules.model_validate(wrong)
