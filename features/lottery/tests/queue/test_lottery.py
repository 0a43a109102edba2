"""A lottery in the queue: entry, the draw, the calls of a drawn line, and the rules, which are fixed before."""

import asyncio
from datetime import datetime
from typing import Any

import pytest
from redis.asyncio import Redis

from features.lottery.check import Evidence, check
from features.lottery.contracts import Entrants, NoLottery, NotEntered, ProofQuestion
from features.lottery.queue.draw import Lotteries, prove_entry
from features.lottery.rules import LotteryRules
from features.lottery.tests.draws import (
    VALUE,
    calls,
    close_entry,
    draw,
    open_and_draw,
    open_lottery,
    published,
    tick_calls,
)
from services.queue.admission.gatekeeper import admit_now
from services.queue.line.repository import LineRepository
from services.queue.problems import RoomStateConflict
from services.queue.rooms import model, store
from shared.contracts.frames import RankingFrame
from shared.contracts.queue import PlaceRef
from shared.contracts.ranking import ranking_of
from shared.errors.problems import BadCredential, InvalidRequest
from shared.runtime.clock import rfc3339
from tests.queue.conftest import EVENT, EVENT_URL, ROOM_URL, TEST, Queue, credentials, load_frame, put_event


async def test_a_lottery_runs_from_the_commitment_to_the_calls(queue: Queue):
    await open_lottery(queue, rate_per_s=9, burst=1)
    before = await published(queue)
    assert (before.stage, before.seed, before.entrants) == ("open", None, {})
    await queue.join_fans(30)
    await close_entry(queue)
    closed = await published(queue)
    assert (closed.stage, closed.entrants[0].n, closed.entrants[0].taken, closed.seed) == ("closed", 30, 30, None)
    [late] = await queue.join("late")
    assert (late.join_seq, late.status) == (31, "prequeue")
    queue.advance_clock(100)
    drawn = await draw(queue)
    assert (drawn.stage, drawn.commitment, drawn.rules) == ("drawn", before.commitment, before.rules)
    assert all(one.holds is not False for one in check(drawn, Evidence(earlier=closed, public_value=VALUE)))
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
    drawn = await draw(queue)
    assert {lane: entrants.n for lane, entrants in drawn.entrants.items()} == {0: 40, 1: 40}
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
    drawn = await published(queue)
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
    assert (await published(queue)).seed is None


async def test_a_lottery_whose_entrants_were_counted_too_late_is_not_drawn(queue: Queue):
    await open_lottery(queue, fans=3)
    queue.advance_clock(250)
    await Lotteries(queue.state).advance()
    with pytest.raises(RoomStateConflict, match="not published before"):
        await draw(queue)


async def test_the_seed_is_published_nowhere_before_the_draw(queue: Queue):
    await open_lottery(queue, fans=3)
    await close_entry(queue)
    [(seed, blind)] = await queue.sql("SELECT encode(seed, 'hex'), encode(blind, 'hex') FROM queue.lottery")
    room = await queue.state.rooms.read(EVENT)
    frame = await queue.tick()
    public = f"{room} {room.configuration()} {frame} {await published(queue)} {await queue.room_hash()}"
    assert seed not in public
    assert blind not in public
    assert frame.lottery is not None
    assert (frame.lottery.stage, frame.lottery.lanes) == ("closed", {})


# -- the rules ---------------------------------------------------------------------------------------------------------


async def test_rules_cannot_change_once_a_fan_has_joined(queue: Queue):
    await open_lottery(queue)
    first = await published(queue)
    queue.advance_clock(10)
    await open_lottery(queue)
    second = await published(queue)
    assert second.commitment != first.commitment, "other rules, another seed"
    await queue.join_fans(1)
    queue.advance_clock(10)
    with pytest.raises(RoomStateConflict, match="joined under the present order"):
        await open_lottery(queue)
    with pytest.raises(RoomStateConflict, match="joined under the present order"):
        await queue.open()
    assert await published(queue) == second
    await queue.state.rooms.reset(EVENT, TEST)
    third = await published(queue)
    assert (third.epoch, third.stage, third.commitment != second.commitment) == (2, "open", True)


async def test_a_line_without_a_lottery_has_nothing_to_publish_or_draw(queue: Queue):
    await queue.open()
    await Lotteries(queue.state).advance()
    with pytest.raises(NoLottery):
        await published(queue)
    with pytest.raises(NoLottery):
        await draw(queue)


def test_entry_must_close_before_the_public_value_is_known():
    rules = {
        "entry_closes_at": "2027-01-01T10:00:00Z",
        "public_value": {"what": "x", "known_at": "2027-01-01T11:00:00Z"},
    }
    assert LotteryRules.model_validate(rules).public_value.what == "x"
    with pytest.raises(ValueError, match="before the public value"):
        LotteryRules.model_validate({**rules, "entry_closes_at": "2027-01-01T12:00:00Z"})


async def test_a_lottery_whose_queue_has_opened_already_is_refused(queue: Queue) -> None:
    """Its seed would be committed to after entry opened. Applying, changing, resetting and opening check it."""
    past, soon = (rfc3339(queue.time_ms + 1000 * after_s) for after_s in (-60, 60))
    with pytest.raises(InvalidRequest, match="queue_opens_at"):
        await open_lottery(queue, queue_opens_at=past)
    assert not await queue.sql("SELECT 1 FROM queue.room")
    await open_lottery(queue, queue_opens_at=soon)
    rooms = queue.state.rooms
    with pytest.raises(InvalidRequest, match="is past"):
        await queue.configure(queue_opens_at=datetime.fromisoformat(past))
    await queue.sql("UPDATE queue.room SET queue_opens_at = clock_timestamp()")
    with pytest.raises(InvalidRequest, match="is past"):
        await rooms.reset(EVENT, TEST)
    assert (await rooms.read(EVENT)).epoch == 1
    await rooms.transition(EVENT, "close", TEST)
    await rooms.reset(EVENT, TEST)
    with pytest.raises(InvalidRequest, match="is past"):
        await rooms.transition(EVENT, "open", TEST)
    await queue.configure(queue_opens_at=None)
    await rooms.transition(EVENT, "open", TEST)


async def test_applying_the_event_file_of_an_open_lottery_again_changes_nothing(queue: Queue) -> None:
    await open_lottery(queue, queue_opens_at=rfc3339(queue.time_ms + 60_000))
    await queue.sql("UPDATE queue.lottery SET committed_at = committed_at - interval '1 day'")
    await queue.sql("UPDATE queue.room SET queue_opens_at = clock_timestamp() - interval '1 minute'")
    before = await queue.state.rooms.read(EVENT)
    assert before.queue_opens_at is not None
    await open_lottery(queue, queue_opens_at=before.queue_opens_at.isoformat())
    assert (await queue.state.rooms.read(EVENT)).version == before.version


async def test_a_lottery_whose_entry_has_closed_cannot_be_opened(admin):
    value = {"what": "an index", "known_at": "2020-01-01T12:00:00Z"}
    rules = {"entry_closes_at": "2020-01-01T10:00:00Z", "public_value": value}
    assert (await put_event(admin, ordering="lottery", lottery=rules)).json()["lottery"] == rules
    refused = await admin.post(f"{ROOM_URL}/open")
    assert (refused.status_code, refused.json()["type"]) == (409, "/problems/room-state-conflict")
    assert (await admin.get(ROOM_URL)).json()["state"] == "draft"
    for public_value in ("", "  ", "x" * 501, "a\u0000b"):
        body = {"public_value": public_value}
        assert (await admin.post(f"{EVENT_URL}/lottery/draw", json=body)).status_code == 422
    early = await admin.post(f"{EVENT_URL}/lottery/draw", json={"public_value": "1"}, headers=credentials("viewer"))
    assert early.status_code == 403


# -- without the feature -----------------------------------------------------------------------------------------------


async def test_an_event_file_with_a_lottery_is_refused_where_lotteries_are_switched_off(queue: Queue) -> None:
    queue.state.rooms._off = {"lottery"}
    with pytest.raises(InvalidRequest, match="ordering: lottery belongs to a feature that is switched off"):
        await open_lottery(queue)
    await queue.open_and_call("fan")
    assert await queue.called() == [1]


async def test_a_drawn_line_waits_while_the_feature_is_not_installed(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = await open_and_draw(queue, rate_per_s=9, burst=1)
    with monkeypatch.context() as patched:
        patched.setattr(model, "_orderings", lambda: {"fifo": model.RoomOrdering()})
        every_room = model.every_room.__wrapped__
        for module in (model, store):
            patched.setattr(module, "every_room", every_room)
        patched.setattr("shared.contracts.ranking.orderings", dict)
        await queue.state.rooms.refresh()
        await queue.tick(4)
        frame = await queue.tick()
        assert (await queue.called(), frame.message, frame.state) == ([], "The sale begins later.", "prequeue")
        with pytest.raises(RoomStateConflict, match="not installed"):
            (await queue.state.rooms.read(EVENT)).event_file_part()
        frame = frame.model_copy(update={"lottery": RankingFrame(stage="drawn")})
        assert ranking_of(frame).pending, "a gateway gives no position either"
    await queue.state.rooms.refresh()
    await queue.tick()
    assert await tick_calls(queue, 16, order) == order


# -- entry -------------------------------------------------------------------------------------------------------------


async def counted_entrants(queue: Queue) -> Entrants:
    [entrants] = (await published(queue)).entrants.values()
    return entrants


async def test_a_batch_numbered_before_the_close_comes_after_all_entrants(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
):
    await open_lottery(queue, fans=2)
    line, allocate = queue.state.line, queue.state.line.allocate
    slow: list[Any] = []

    async def allocate_slowly(room, lane, batch_id, *, count):
        numbers = await allocate(room, lane, batch_id, count=count)
        if not slow:
            slow.append(numbers)
            await queue.join("quick")  # committed with a higher number
            await close_entry(queue)
        return numbers

    monkeypatch.setattr(line, "allocate", allocate_slowly)
    [joined] = await queue.join("slow")
    entrants = await counted_entrants(queue)
    assert (slow[0].first, entrants.n, entrants.taken) == (3, 4, 3)
    assert joined.join_seq > entrants.n
    assert len(await queue.sql("SELECT 1 FROM queue.place")) == 4


async def test_closing_waits_for_a_batch_that_is_being_inserted_and_counts_it(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
):
    read = queue.state.rooms.read
    monkeypatch.setattr(Lotteries, "_rebuild", lambda _, event_id: read(event_id))  # a rebuild would wait, too
    await open_lottery(queue)
    async with queue.blocked_join("ann") as slow:
        await queue.join("quick")
        closing = asyncio.create_task(close_entry(queue))
        done, _ = await asyncio.wait([closing], timeout=0.3)
        assert not done
    assert [place.join_seq for place in await slow] == [1]
    await closing
    entrants = await counted_entrants(queue)
    assert (entrants.n, entrants.taken) == (2, 2)


async def test_closing_waits_for_places_that_are_numbered_by_the_database(queue: Queue):
    await open_lottery(queue, fans=2)
    async with queue.db.begin() as connection:
        await connection.exec_driver_sql("SELECT 1 FROM queue.lane FOR UPDATE")
        await LineRepository(connection, EVENT, 1).insert_places_in_db(0, [("ann", None)])
        closing = asyncio.create_task(close_entry(queue))
        done, _ = await asyncio.wait([closing], timeout=0.3)
        assert not done
    await closing
    entrants = await counted_entrants(queue)
    assert entrants.n == 3


async def test_an_interrupted_count_of_the_entrants_is_done_by_the_next_process(
    queue: Queue, new_queue, monkeypatch: pytest.MonkeyPatch
):
    await open_lottery(queue, fans=3)

    async def die(*_):
        raise SystemError

    with monkeypatch.context() as patched:
        patched.setattr(Lotteries, "count", die)
        with pytest.raises(SystemError):
            await close_entry(queue)
    other = new_queue()
    await other.state.rooms.refresh()
    assert (await published(other)).entrants == {}
    await Lotteries(other.state).advance()
    first = await published(other)
    assert (first.entrants[0].n, first.stage) == (3, "closed")
    await Lotteries(other.state).count(EVENT)
    assert await published(other) == first


async def test_an_entrant_gets_a_proof_of_entry(queue: Queue):
    await open_lottery(queue, fans=5)
    question = ProofQuestion(event_id=EVENT, epoch=1, place=PlaceRef(lane=0, join_seq=4, holder="fan-4"))

    async def prove(**changes):
        place = question.place.model_copy(update=changes)
        return await prove_entry(queue.state, question.model_copy(update={"place": place}))

    with pytest.raises(NotEntered, match="still being counted"):
        await prove()
    await close_entry(queue)
    await queue.join("late")
    lottery, proof = await published(queue), await prove()
    assert check(lottery, Evidence(proof=proof))[-1].holds
    assert "fan-4" not in proof.model_dump_json()
    forged = proof.model_copy(update={"entry": 5})
    assert check(lottery, Evidence(proof=forged))[-1].holds is False
    with pytest.raises(BadCredential):
        await prove(holder="fan-5")
    with pytest.raises(NotEntered, match="after entry had closed"):
        await prove(join_seq=6, holder="late")


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 17])
async def test_proofs_hold_for_entrants_that_were_counted_in_chunks(
    queue: Queue, count: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("features.lottery.queue.draw.CHUNK", 4)
    await open_lottery(queue)
    if count:
        await queue.join_fans(count)
    await close_entry(queue)
    lottery = await published(queue)
    assert lottery.entrants[0].n == count
    for entry in range(1, count + 1):
        place = PlaceRef(lane=0, join_seq=entry, holder=f"fan-{entry}")
        proof = await prove_entry(queue.state, ProofQuestion(event_id=EVENT, epoch=1, place=place))
        assert check(lottery, Evidence(proof=proof))[-1].holds


async def test_entry_closes_while_redis_is_unavailable(queue: Queue, redis: Redis, monkeypatch: pytest.MonkeyPatch):
    await open_lottery(queue, fans=3)

    async def unavailable(_event_id):
        raise ConnectionError

    with monkeypatch.context() as patched:
        patched.setattr(queue.state.recovery, "rebuild", unavailable)
        patched.setattr("features.lottery.queue.draw.REDIS_AWAY", (ConnectionError,))
        await close_entry(queue)
    assert (await published(queue)).entrants[0].n == 3
    before = (await queue.room_hash())["generation"]
    await queue.state.recovery.watch()
    assert (await queue.room_hash())["generation"] != before
    assert [place.join_seq for place in await queue.join("late")] == [4]
