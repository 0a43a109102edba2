"""The draw of a lottery: it happens once, orders the line, and the line keeps to that order."""

import pytest

from onsale.lottery_check import Evidence, check
from services.queue.admission.gatekeeper import admit_now
from services.queue.problems import RoomStateConflict
from tests.queue.conftest import EVENT, Queue, load_frame
from tests.queue.lottery.draws import VALUE, calls, close_entry, draw, open_and_draw, open_lottery, tick_calls


async def test_a_lottery_runs_from_the_commitment_to_the_calls(queue: Queue):
    await open_lottery(queue, rate_per_s=9, burst=1)
    before = await queue.state.lottery.published(EVENT)
    assert (before.stage, before.seed, before.entrants) == ("open", None, {})
    await queue.join_fans(30)
    await close_entry(queue)
    closed = await queue.state.lottery.published(EVENT)
    assert (closed.stage, closed.entrants[0].n, closed.entrants[0].taken, closed.seed) == ("closed", 30, 30, None)
    [late] = await queue.join("late")
    assert (late.join_seq, late.status) == (31, "prequeue")
    queue.advance_clock(100)
    published = await draw(queue)
    assert (published.stage, published.commitment, published.rules) == ("drawn", before.commitment, before.rules)
    assert all(one.holds is not False for one in check(published, Evidence(earlier=closed, public_value=VALUE)))
    ranking = (await queue.state.rooms.get(EVENT)).ranking
    order = [*(ranking.entry(0, rank) for rank in range(1, 31)), 31]
    queue.advance_clock(40)
    await queue.tick()
    assert await tick_calls(queue, 40, order) == order != list(range(1, 32))
    assert await queue.violations() == []


async def test_nobody_is_called_before_the_draw_and_the_frame_explains_it(queue: Queue):
    await open_lottery(queue, fans=3)
    await close_entry(queue)
    assert (await queue.tick(100)).message is None
    frame = await queue.tick(60)
    assert (frame.state, frame.message) == ("prequeue", "The sale begins as soon as the lottery is drawn.")
    assert await queue.called() == []
    await draw(queue)
    await queue.tick()
    frame = await queue.tick()
    assert (frame.state, frame.message, await queue.called()) == ("open", None, [1, 2, 3])


async def test_a_loss_of_redis_keeps_the_drawn_order(queue: Queue):
    order = await open_and_draw(queue, rate_per_s=9, burst=1, claim_window_s=300)
    await queue.leave((order[4], f"fan-{order[4]}"))
    await queue.tick(4)
    first = await tick_calls(queue, 4, order)
    await queue.claim((first[0], f"fan-{first[0]}"))
    await queue.redis.flushall()
    await queue.tick()
    assert await queue.status((first[0], f"fan-{first[0]}")) == ["admitted"]
    assert await tick_calls(queue, 40, order) == [entry for entry in order if entry != order[4]]


async def test_a_process_started_after_the_draw_calls_by_rank(queue: Queue, new_queue):
    order = await open_and_draw(queue, rate_per_s=9, burst=1)
    other = new_queue()
    await other.state.rooms.refresh()
    other.time_ms = queue.time_ms
    await other.tick(4)
    assert await tick_calls(other, 15, order) == order
    assert await other.status((order[0], f"fan-{order[0]}")) == ["ready"]


async def test_a_gatekeeper_that_missed_the_draw_calls_nobody_by_entry_number(queue: Queue, new_queue):
    await open_lottery(queue, fans=12, rate_per_s=9, burst=1)
    await close_entry(queue)
    other = new_queue()
    await other.state.rooms.refresh()
    queue.advance_clock(100)
    await draw(queue)
    ranking = (await queue.state.rooms.get(EVENT)).ranking
    order = [ranking.entry(0, rank) for rank in range(1, 13)]
    other.time_ms = queue.time_ms
    await other.tick(41)
    assert await tick_calls(other, 16, order) == order


async def test_each_lane_has_its_own_draw(queue: Queue):
    await open_lottery(queue)
    await queue.sql("INSERT INTO queue.lane VALUES (:event_id, 1, 1, 0)", event_id=EVENT)
    await queue.state.rooms.read(EVENT)
    await queue.join_fans(40)
    await queue.join_fans(40, name="vip", lane=1)
    await close_entry(queue)
    queue.advance_clock(100)
    published = await draw(queue)
    assert {lane: entrants.n for lane, entrants in published.entrants.items()} == {0: 40, 1: 40}
    order = (await queue.state.rooms.get(EVENT)).ranking
    lanes = [[order.rank(lane, entry) for entry in range(1, 41)] for lane in (0, 1)]
    assert sorted(lanes[0]) == sorted(lanes[1]) == list(range(1, 41))
    assert lanes[0] != lanes[1]
    await queue.tick(41)
    await queue.tick()
    assert await queue.claim((7, "fan-7"))
    assert len(await queue.sql("SELECT 1 FROM queue.admission")) == 80


async def test_a_fan_who_joins_again_after_the_draw_gets_the_status_of_the_drawn_place(queue: Queue):
    order = await open_and_draw(queue, entrants_n=30, max_active=5)
    await queue.tick(4)
    await queue.tick()
    answers = [await queue.join(f"fan-{entry}", may_be_known=True) for entry in order[:7]]
    assert [(one.join_seq, one.status) for [one] in answers] == [
        *((entry, "ready") for entry in order[:5]), *((entry, "waiting") for entry in order[5:7]),
    ]  # fmt: skip


async def test_a_fan_who_bypasses_a_drawn_line_is_called_by_entry_number(queue: Queue):
    order = await open_and_draw(queue, rate_per_s=0)
    await queue.configure(rollout_percent=0.0)
    await queue.tick(4)
    assert await queue.status((order[5], f"fan-{order[5]}")) == ["ready"]
    await queue.tick()
    assert await calls(queue) == [order[5]]
    [claimed] = await queue.claim((order[5], f"fan-{order[5]}"))
    assert claimed.jti == f"1-0-{order[5]}-1"


async def test_after_the_draw_fans_are_admitted_by_hand_and_overload_lowers_the_rate(queue: Queue):
    order = await open_and_draw(queue, rate_per_s=0)
    await queue.tick(4)
    room, ceilings = await queue.state.rooms.get(EVENT), queue.state.control_loop.ceilings
    assert await admit_now(queue.state.line, queue.state.gatekeeper, room, 3) == 3
    assert await calls(queue, order) == order[:3]
    slow = load_frame(work=90.0, average_work=90.0, done_per_s=1.0)
    ceilings.load_cache.on_frame(slow.model_dump_json().encode())
    assert await ceilings.adjust(room) == "inventory-slow"
    assert float((await queue.room_hash())["at_checkout"]) == 90


async def test_a_fan_who_left_before_the_draw_is_not_called(queue: Queue):
    await open_lottery(queue, fans=6)
    await queue.leave((2, "fan-2"), (5, "fan-5"))
    await close_entry(queue)
    queue.advance_clock(100)
    assert (await draw(queue)).entrants[0].taken == 6
    await queue.tick(41)
    await queue.tick()
    assert sorted(await calls(queue)) == [1, 3, 4, 6]
    assert await queue.status((2, "fan-2"), (5, "fan-5")) == ["left", "left"]


async def test_a_lottery_is_drawn_once(queue: Queue):
    await open_and_draw(queue)
    drawn = await queue.state.lottery.published(EVENT)
    generation = (await queue.state.rooms.get(EVENT)).generation
    assert await draw(queue) == drawn
    with pytest.raises(RoomStateConflict, match="another value"):
        await draw(queue, "a nicer value")
    assert (await queue.state.rooms.get(EVENT)).generation == generation
    assert len(await queue.sql("SELECT 1 FROM queue.audit_log WHERE action = 'draw'")) == 1


async def test_a_lottery_is_not_drawn_before_its_public_value_is_known(queue: Queue):
    await open_lottery(queue, fans=3)
    with pytest.raises(RoomStateConflict, match="not closed"):
        await draw(queue)
    await close_entry(queue)
    with pytest.raises(RoomStateConflict, match="not known before"):
        await draw(queue)
    assert (await queue.state.lottery.published(EVENT)).seed is None


async def test_a_lottery_whose_entrants_were_counted_too_late_is_not_drawn(queue: Queue):
    await open_lottery(queue, fans=3)
    queue.advance_clock(250)
    await queue.state.lottery.advance()
    with pytest.raises(RoomStateConflict, match="not published before"):
        await draw(queue)


async def test_the_seed_is_published_nowhere_before_the_draw(queue: Queue):
    await open_lottery(queue, fans=3)
    await close_entry(queue)
    [(seed, blind)] = await queue.sql("SELECT encode(seed, 'hex'), encode(blind, 'hex') FROM queue.lottery")
    room = await queue.state.rooms.read(EVENT)
    frame = await queue.tick()
    published = await queue.state.lottery.published(EVENT)
    public = f"{room} {room.configuration()} {frame} {published} {await queue.room_hash()}"
    assert seed not in public
    assert blind not in public
    assert frame.lottery is not None
    assert (frame.lottery.stage, frame.lottery.lanes) == ("closed", {})
