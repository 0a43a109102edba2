"""Autotune keeps to its bounds; a capacity plan says when a line drains and when everything is sold."""

from dataclasses import replace
from typing import Any

import httpx
import pytest
from pydantic import TypeAdapter

from features.autotune.queue.autotune import Autotune, target_rate
from features.autotune.queue.capacity_plan import SlotUse, make_plan, slot_use
from features.autotune.rules import AutotunePace
from shared.concurrency.background import Quiet
from shared.contracts.admin.queue import PlanRequest
from shared.contracts.frames import SectionCounts, StockFrame, Throttled
from shared.contracts.room_options import PaceRules, StoredRoomOptions
from shared.runtime.clock import to_datetime
from tests.queue.conftest import EVENT, ROOM_URL, Queue, line_frame, load_frame, open_event
from tests.support.wait import wait_until

TUNED = AutotunePace(autotune="on", rate_min=20, rate_max=120)


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


@pytest.mark.parametrize(
    ("pace", "refusal"), [({"autotune": True}, "autotune needs"), ({"rate_min": 5, "rate_max": 2}, "must not be above")]
)
def test_rules_without_bounds_in_their_order_are_refused(pace: dict[str, Any], refusal: str) -> None:
    with pytest.raises(ValueError, match=refusal):
        PaceRules.model_validate(pace)
    stored: Any = TypeAdapter(StoredRoomOptions).validate_python({"pace": {"autotune": "off", "of_a_feature_gone": 1}})
    assert stored.pace.autotune == "off"


async def tuned(queue: Queue, *, runs: int = 1, **pace: Any) -> Autotune:
    """After these runs while checkout is slow, a tick after each."""
    await queue.open(rate_per_s=100, pace={"guard": "off", "rate_min": 10, "rate_max": 200, **pace})
    state, load_cache = queue.state, queue.state.control_loop.ceilings.load_cache
    autotune = Autotune(state.rooms, state.gatekeeper, load_cache, state.operations.target_rates)
    await queue.tick()
    for _ in range(runs):
        slow = load_frame(work=150.0, average_work=150.0, done_per_s=50.0)
        load_cache.on_frame(slow.model_dump_json().encode())
        await autotune.run_once()
        await queue.tick(1.0)
    return autotune


async def test_autotune_changes_the_rate_once_in_ten_seconds_and_writes_the_audit_log(queue: Queue) -> None:
    await tuned(queue, runs=3, autotune="on")
    rows = await queue.sql(
        "SELECT actor, action, reason, after FROM queue.audit_log WHERE actor = 'autotune' ORDER BY id"
    )
    assert len(rows) == 1
    assert (rows[0].action, rows[0].reason, rows[0].after["rate_per_s"]) == ("change", "inventory-slow", 80)


async def test_autotune_that_observes_changes_no_rate_and_rests_when_it_is_off(queue: Queue) -> None:
    autotune = await tuned(queue, autotune="observe")
    assert queue.state.operations.target_rates == {EVENT: 80}
    assert (await queue.state.rooms.read(EVENT)).rate_per_s == 100
    assert await autotune.run_once() is None
    await queue.configure(pace=PaceRules())
    assert await autotune.run_once() == Quiet()
    assert queue.state.operations.target_rates == {}


async def test_a_plan_changes_nothing_and_the_room_shows_its_target_rate(admin: httpx.AsyncClient) -> None:
    await open_event(admin)
    patched = await admin.patch(
        ROOM_URL, json={"pace": {"autotune": "observe", "rate_min": 10, "rate_max": 900}, "reason": "trial"}
    )
    assert (patched.json()["pace"]["autotune"], patched.json()["pace"]["guard"]) == ("observe", "on")
    before = (await admin.get(ROOM_URL)).json()["version"]
    plan = (await admin.post(f"{ROOM_URL}/capacity-plan", json={"rate_per_s": 100})).json()
    assert plan["limiting_factor"] == "nobody waits"

    async def shows_target_rate() -> bool:
        room = (await admin.get(ROOM_URL)).json()
        return bool(room["autotune_rate_per_s"] == 900 and room["version"] == before and room["throttled"] is None)

    await wait_until(shows_target_rate)


# -- capacity plan -----------------------------------------------------------------------------------------------------


LINE = line_frame(tail=7200, live_ratio=0.5)


async def test_a_plan_names_when_the_line_drains_and_the_limiting_factor(queue: Queue) -> None:
    await queue.open(rate_per_s=50, max_active=100)
    room = await queue.state.rooms.read(EVENT)
    at_ms = 1_800_000_000_000
    plan = make_plan(room, LINE, SlotUse(), PlanRequest(rate_per_s=10), at_ms=at_ms)
    assert (plan.expected_calls, plan.limiting_factor, plan.drains_in_s) == (3600, "rate", 360)
    assert "drains at 08:06 UTC" in plan.summary
    plan = make_plan(room, LINE, SlotUse(slot_s=20.0), PlanRequest(), at_ms=at_ms)
    assert (plan.limiting_factor, plan.calls_per_s, plan.drains_in_s) == ("max_active", 5, 720)
    assert "max_active 100 limits" in plan.summary
    plan = make_plan(room, LINE, SlotUse(slot_s=20.0), PlanRequest(max_active=2000), at_ms=at_ms)
    assert (plan.limiting_factor, plan.drains_in_s) == ("rate", 72)
    assert make_plan(room, line_frame(head=7200, tail=7200), SlotUse(), PlanRequest()).limiting_factor == "nobody waits"
    await queue.configure(sale_starts_at=to_datetime(at_ms + 100_000))
    room = await queue.state.rooms.read(EVENT)
    plan = make_plan(room, LINE, SlotUse(), PlanRequest(rate_per_s=10), at_ms=at_ms)
    assert plan.drains_in_s in (460, 461), "counted from the start of the sale"
    await queue.configure(max_active=0)
    stopped = make_plan(await queue.state.rooms.read(EVENT), LINE, SlotUse(), PlanRequest())
    assert (stopped.limiting_factor, stopped.drains_at) == ("nothing moves", None)


async def test_a_plan_names_when_everything_is_sold_and_how_many_wait_in_vain(queue: Queue) -> None:
    await queue.open(rate_per_s=100)
    room = replace(await queue.state.rooms.read(EVENT), tickets_per_order=4)
    at_ms = 1_800_000_000_000
    sections = [SectionCounts(section_id="A", available=900, held=100, sold=0, at_ms=0)]
    stock = StockFrame(event_id=EVENT, epoch=1, version=1, ready=True, at_ms=0, sections=sections)
    measured = SlotUse(slot_s=1.0, claimed_share=0.9, bought_share=0.5)

    plan = make_plan(room, LINE, measured, PlanRequest(rate_per_s=100), stock=stock, at_ms=at_ms)
    assert plan.expected_calls == 3600
    assert plan.sells_out_at == to_datetime(at_ms + 7_200), "900 tickets, 2.5 of them for every second call"
    assert plan.sells_out_between == [to_datetime(at_ms + 2_500), to_datetime(at_ms + 20_000)]
    assert plan.in_vain == 3600 - 720

    held_by_twenty = stock.model_copy(update={"holders_holding": 50})
    plan = make_plan(room, LINE, measured, PlanRequest(rate_per_s=100), stock=held_by_twenty, at_ms=at_ms)
    assert plan.in_vain == 3600 - 900, "two tickets each, as those who hold now"
    plan = make_plan(room, LINE, SlotUse(), PlanRequest(rate_per_s=100), stock=stock, at_ms=at_ms)
    assert plan.sells_out_between == [to_datetime(at_ms + 2_250), None], "nobody has bought: perhaps never"
    enough = stock.model_copy(update={"sections": [sections[0].model_copy(update={"available": 90_000})]})
    plan = make_plan(room, LINE, measured, PlanRequest(rate_per_s=100), stock=enough, at_ms=at_ms)
    assert (plan.sells_out_at, plan.in_vain) == (None, 0)
    assert make_plan(room, LINE, measured, PlanRequest(), at_ms=at_ms).in_vain is None, "the stock is not known"

    few_claimed_yet = SlotUse(slot_s=20.0, claimed_share=0.8, bought_share=0.9)
    holding = stock.model_copy(update={"holders_holding": 100})
    plan = make_plan(room, LINE, few_claimed_yet, PlanRequest(rate_per_s=100), stock=holding, at_ms=at_ms)
    times = [*(plan.sells_out_between or ()), plan.sells_out_at]
    assert times == [to_datetime(at_ms + after_ms) for after_ms in (10_000, 11_112, 10_000)], (
        "never before the earliest"
    )


async def test_the_time_that_a_session_occupies_its_slot_is_measured_from_the_database(queue: Queue) -> None:
    await queue.open_and_call(fans=10, claim_window_s=20, max_misses=1, session_s=100)
    room = await queue.state.rooms.read(EVENT)
    assert await slot_use(queue.db, room, at_ms=queue.time_ms) == SlotUse()
    await queue.sql("UPDATE queue.place SET bought_at = now() WHERE join_seq <= 2")
    await queue.claim(*((seq, f"fan-{seq}") for seq in range(1, 5)))
    await queue.tick(21)
    await queue.sql("UPDATE queue.place SET ended_at = to_timestamp(:ms / 1000.0), end_reason = 'completed' "
                    "WHERE join_seq <= 4", ms=queue.time_ms)  # fmt: skip
    use = await slot_use(queue.db, room, at_ms=queue.time_ms)
    assert (use.claimed_share, use.bought_share) == (0.4, 0.2)
    assert use.slot_s is not None
    assert 19 < use.slot_s < 22
