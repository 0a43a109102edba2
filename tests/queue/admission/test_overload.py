"""The overload throttle lowers the rate, never stops the line and restores the rate; autotune keeps to its bounds."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from services.queue.admission.autotune import target_rate
from services.queue.admission.overload import LoadCache, classify
from shared.contracts.event_file import RoomPart
from shared.contracts.frames import FRAME_STALE_S, LineFrame, LoadFrame, Throttled, load_channel
from shared.contracts.room_options import PaceRules
from tests.queue.conftest import EVENT, Queue, line_frame, load_frame
from tests.support.wait import wait_until

SLOW: dict[str, Any] = {"p95_ms": 4000.0}


@pytest.mark.parametrize(
    ("facts", "overload"),
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
def test_load_frames_are_classified_and_one_slow_request_is_no_overload(
    facts: list[dict[str, Any]], overload: str | None
) -> None:
    frames = [load_frame(process=f"i-{n}", **one) for n, one in enumerate(facts)]
    assert classify(frames, slow_ms=1500) == overload


@pytest.fixture
def control_and_tick(queue: Queue) -> Callable[..., Any]:
    """Runs the control loop, after a load frame if one is given, and then a tick."""

    async def run(after_s: float = 2.0, *, load: LoadFrame | None = None) -> LineFrame:
        if load is not None:
            receive(queue, load)
        queue.advance_clock(after_s)
        await queue.state.control_loop.run_once()
        return await queue.state.gatekeeper.tick(EVENT)

    return run


def receive(queue: Queue, load: LoadFrame) -> None:
    queue.state.control_loop.throttle.load_cache.on_frame(load.model_dump_json().encode())


async def test_overload_lowers_the_rate_within_thirty_seconds_and_its_end_restores_it(
    queue: Queue, control_and_tick
) -> None:
    await queue.open(fans=10, rate_per_s=100, burst=1)
    first = await control_and_tick(load=load_frame(**SLOW))
    assert first.throttled == Throttled(factor=0.7, reason="inventory-slow")
    assert first.rate_per_s == pytest.approx(70)
    rates = [(await control_and_tick(load=load_frame("orders", "o-1", refused=90))).rate_per_s for _ in range(12)]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] == pytest.approx(10), "the floor: the line never stops"
    for load in (load_frame(), load_frame("orders", "o-1")):
        await control_and_tick(0.1, load=load)
    easing = await control_and_tick(20)
    assert easing.throttled is not None
    assert easing.throttled.reason == "easing"
    assert 70 < easing.rate_per_s < 90
    restored = await control_and_tick(60)
    assert (restored.rate_per_s, restored.throttled) == (100, None)


async def test_half_the_rate_is_back_in_seconds_and_the_rest_slowly(queue: Queue, control_and_tick) -> None:
    """The time that the machine itself takes passes, too."""
    await queue.open(fans=10, rate_per_s=100, burst=1)
    for _ in range(9):
        await control_and_tick(load=load_frame(**SLOW))
    await control_and_tick(0.0, load=load_frame())
    soon = await control_and_tick(5)
    assert soon.rate_per_s == pytest.approx(50, abs=10), "half of what it was: doubled each 2 s from a tenth"
    later = await control_and_tick(12)
    assert later.rate_per_s == pytest.approx(70, abs=10), "a sixtieth each second"
    again = [await control_and_tick(load=load_frame(**SLOW)) for _ in range(9)][-1]
    assert again.rate_per_s == pytest.approx(10)
    await control_and_tick(0.0, load=load_frame())
    assert (await control_and_tick(4)).rate_per_s == pytest.approx(36, abs=8), "half of the 70 it fell from"


async def test_two_control_loops_lower_the_rate_by_one_step(queue: Queue, new_queue) -> None:
    await queue.open(rate_per_s=100)
    other = new_queue()
    await other.state.rooms.refresh()
    queue.advance_clock(2.0)
    other.state.line.clock_offset_ms = queue.state.line.clock_offset_ms
    for one in (queue, other, queue, other):
        receive(one, load_frame(**SLOW))
        await one.state.control_loop.run_once()
    assert (await queue.room_hash())["throttle_factor"] == "0.7000"


async def test_a_stale_load_frame_does_not_lower_the_rate(queue: Queue, control_and_tick) -> None:
    now_s = 0.0
    queue.state.control_loop.throttle.load_cache = LoadCache(queue.redis, clock=lambda: now_s)
    await queue.open(rate_per_s=100)
    await control_and_tick(load=load_frame(**SLOW))
    now_s = FRAME_STALE_S + 1
    rate_per_s = [(await control_and_tick(10)).rate_per_s for _ in range(8)][-1]
    assert rate_per_s == 100


@pytest.mark.parametrize("mode", ["observe", "off"])
async def test_a_throttle_that_observes_leaves_the_rate_alone(queue: Queue, control_and_tick, mode: str) -> None:
    await queue.open(rate_per_s=100, pace={"guard": mode})
    frame = [await control_and_tick(load=load_frame(**SLOW)) for _ in range(5)][-1]
    assert (frame.rate_per_s, frame.throttled) == (100, None)
    observed = queue.state.control_loop.throttle.observed.get(EVENT)
    assert (observed.factor < 0.4 if observed else None) == (True if mode == "observe" else None)


async def test_switching_the_throttle_off_restores_the_rate_at_once(queue: Queue, control_and_tick) -> None:
    await queue.open(rate_per_s=100)
    assert (await control_and_tick(load=load_frame(**SLOW))).rate_per_s == pytest.approx(70)
    await queue.configure(pace=PaceRules(guard="off"))
    assert (await control_and_tick(0.2, load=load_frame(**SLOW))).rate_per_s == 100


async def test_a_throttled_line_calls_at_the_rate_of_its_frame(queue: Queue, control_and_tick) -> None:
    await queue.open(fans=900, rate_per_s=100, burst=1, max_active=100_000)
    while (await control_and_tick(load=load_frame(**SLOW))).rate_per_s > 10:
        pass
    before, began_s = len(await queue.called()), time.monotonic()
    for _ in range(10):
        queue.advance_clock(1.0)
        await queue.state.gatekeeper.tick(EVENT)
    took_s = 10 + time.monotonic() - began_s
    assert len(await queue.called()) - before in range(95, int(10 * took_s) + 6), "10 s at a tenth of 100"


async def test_load_frames_are_received_over_pub_sub_and_invalid_ones_are_ignored(queue: Queue) -> None:
    load_cache = queue.state.control_loop.throttle.load_cache
    listening = asyncio.create_task(load_cache.listen())
    try:

        async def received() -> bool:
            await queue.redis.publish(load_channel("inventory"), b"{}")
            await queue.redis.publish(load_channel("inventory"), load_frame(**SLOW).model_dump_json())
            return load_cache.overload(slow_ms=1500) == "inventory-slow"

        await wait_until(received)
        assert load_cache.overload(slow_ms=5000) is None, "each room has a limit of its own for slow"
    finally:
        listening.cancel()


async def test_after_a_loss_of_redis_the_rate_ramps_up_from_a_fifth(new_queue) -> None:
    queue = new_queue(ramp_after_loss=True)
    await queue.open(fans=50, rate_per_s=100, burst=1, max_active=100_000)
    await queue.redis.flushall()
    await queue.state.recovery.rebuild(EVENT)
    queue.time_ms = int((await queue.room_hash())["ramp_ms"])  # the test's own time does not count
    frames = [await queue.tick(s) for s in (0.2, 14.8, 0.2, 16.0, 0.2)][::2]  # a tick uses the rate it began with
    factors = [frame.throttled.factor if frame.throttled else 1.0 for frame in frames]
    assert factors == [pytest.approx(0.2, abs=0.02), pytest.approx(0.6, abs=0.02), 1.0]
    assert frames[0].throttled
    assert frames[0].throttled.reason == "recovering"


# -- autotune ----------------------------------------------------------------------------------------------------------

TUNED = PaceRules(autotune="on", rate_min=20, rate_max=120)


@pytest.mark.parametrize(
    ("rate", "facts", "overload", "target"),
    [
        (100, {}, None, 105),
        (118, {"calls_per_s": 118.0}, None, 120),
        (100, {}, "orders-slow", 80),
        (22, {}, "orders-slow", 20),
        (100, {"calls_per_s": 50.0}, None, 100),
        (100, {"full": True}, None, 100),
        (100, {"head": 1000}, None, 100),
        (100, {"state": "paused"}, None, 100),
        (100, {"throttled": Throttled(factor=0.5, reason="easing")}, None, 100),
        (500, {"calls_per_s": 1.0}, None, 120),
        (5, {"calls_per_s": 1.0}, None, 20),
    ],
)
def test_autotune_changes_the_rate_within_its_bounds_and_only_for_a_reason(rate, facts, overload, target) -> None:
    assert target_rate(rate, TUNED, line_frame(**{"calls_per_s": 99.0, **facts}), overload) == target


async def test_autotune_changes_the_rate_once_in_ten_seconds_and_writes_the_audit_log(
    queue: Queue, control_and_tick
) -> None:
    await queue.open(rate_per_s=100, pace={"guard": "off", "autotune": "on", "rate_min": 10, "rate_max": 200})
    for _ in range(3):
        await control_and_tick(load=load_frame(**SLOW))
    rows = await queue.sql(
        "SELECT actor, action, reason, after FROM queue.audit_log WHERE actor = 'autotune' ORDER BY id"
    )
    assert len(rows) == 1
    assert (rows[0].action, rows[0].reason, rows[0].after["rate_per_s"]) == ("change", "inventory-slow", 80)


async def test_autotune_that_observes_changes_no_rate(queue: Queue, control_and_tick) -> None:
    await queue.open(rate_per_s=100, pace={"guard": "off", "autotune": "observe", "rate_min": 10, "rate_max": 200})
    await control_and_tick(load=load_frame(**SLOW))
    assert queue.state.control_loop.autotune.target_rates == {EVENT: 80}
    assert (await queue.state.rooms.read(EVENT)).rate_per_s == 100


def test_switches_may_be_booleans_and_wrong_pace_rules_are_refused() -> None:
    part = RoomPart.model_validate({"pace": {"guard": False, "autotune": True, "rate_min": 1, "rate_max": 2}})
    assert (part.pace.guard, part.pace.autotune) == ("off", "on")
    for wrong in ({"autotune": "on"}, {"rate_min": 5, "rate_max": 2}, {"guard": "maybe"}, {"guard_floor": 0}):
        with pytest.raises(ValueError, match=r"autotune needs|must not be above|Input should"):
            PaceRules.model_validate(wrong)
