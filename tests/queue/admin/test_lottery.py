"""The lottery of a pre-queue: entry closes once and for all, the draw orders the line, and the line keeps to it."""

import asyncio
from datetime import datetime
from typing import Any

import pytest
from redis.asyncio import Redis
from sqlalchemy import text

from onsale.lottery_check import Evidence, check
from services.queue import recovery
from services.queue.line.repository import LineRepository
from services.queue.lottery import service
from services.queue.lottery.entrants import prove_entry
from services.queue.lottery.ranking import Ranking
from services.queue.problems import RoomStateConflict
from services.queue.rooms.invariants import check_invariants
from shared.contracts.lottery import ProofQuestion
from shared.contracts.queue import PlaceRef
from shared.contracts.room_options import LotteryRules
from shared.runtime.clock import rfc3339
from shared.web.problems import BadCredential, InvalidRequest, NoLottery, NotEntered
from tests.queue.conftest import EVENT, Queue
from tests.queue.line.test_insert_places import TELLER, waiting_in_the_database
from tests.support.wait import wait_until

VALUE = "closing number 24,331.09"


async def open_lottery(queue: Queue, **room) -> None:
    """Entry closes in 100 s, the value is known in 200 s, the sale starts in 240 s."""
    closes, known, starts = (rfc3339(queue.time_ms + 1000 * after_s) for after_s in (100, 200, 240))
    rules = {"entry_closes_at": closes, "public_value": {"what": "an index", "known_at": known}}
    await queue.open(ordering="lottery", sale_starts_at=starts, lottery=rules, **room)


async def close_entry(queue: Queue) -> None:
    queue.later(101)
    await queue.state.lottery.advance()


async def draw(queue: Queue, value: str = VALUE):
    return await queue.state.lottery.draw(EVENT, value, actor="test", reason=None)


async def drawn(queue: Queue, entrants_n: int = 12, **room) -> list[int]:
    """A line drawn, its sale about to start: the entry numbers in the order of the draw."""
    await open_lottery(queue, **room)
    await queue.crowd(entrants_n)
    await close_entry(queue)
    queue.later(100)
    await draw(queue)
    queue.later(38)
    room_now = await queue.state.rooms.get(EVENT)
    return [room_now.ranking.entry(0, rank) for rank in range(1, entrants_n + 1)]


async def calls(queue: Queue) -> list[int]:
    """The numbers called, in the order of their calls as the database has it."""
    rows = await queue.sql("SELECT body -> 'after' -> 'places' FROM queue.outbox WHERE body ->> 'type' = 'place.called'"
                           " ORDER BY id")  # fmt: skip
    return [seq for (places,) in rows for _, seq in places]


async def one_by_one(queue: Queue, ticks: int) -> list[int]:
    for _ in range(ticks):
        await queue.tick(0.1)
    return await calls(queue)


async def test_from_the_commitment_to_the_calls(queue: Queue):
    await open_lottery(queue, rate_per_s=9, burst=1)
    before = await queue.state.lottery.published(EVENT)
    assert (before.stage, before.seed, before.entrants) == ("open", None, {})
    await queue.crowd(30)
    await close_entry(queue)
    closed = await queue.state.lottery.published(EVENT)
    assert (closed.stage, closed.entrants[0].n, closed.entrants[0].taken, closed.seed) == ("closed", 30, 30, None)
    [late] = await queue.join("late")
    assert (late.join_seq, late.status) == (31, "prequeue")
    queue.later(100)
    published = await draw(queue)
    assert (published.stage, published.commitment, published.rules) == ("drawn", before.commitment, before.rules)
    assert all(one.holds is not False for one in check(published, Evidence(earlier=closed, public_value=VALUE)))
    order = (await queue.state.rooms.get(EVENT)).ranking
    queue.later(40)
    await queue.tick()
    called = await one_by_one(queue, 40)
    assert called == [order.entry(0, rank) for rank in range(1, 31)] + [31] != list(range(1, 32))
    rows = await check_invariants(
        queue.db,
        queue.redis,
        await queue.state.rooms.get(EVENT),
        clock_offset_ms=queue.state.line.clock_offset_ms,
    )
    assert all(row.holds for row in rows)


async def test_nobody_is_called_before_the_draw_and_everybody_is_told_why(queue: Queue):
    await open_lottery(queue)
    await queue.crowd(3)
    await close_entry(queue)
    assert (await queue.tick(100)).message is None
    frame = await queue.tick(60)
    assert (frame.state, frame.message) == ("prequeue", "The sale begins as soon as the lottery is drawn.")
    assert await queue.called() == []
    await draw(queue)
    await queue.tick()
    frame = await queue.tick()
    assert (frame.state, frame.message, await queue.called()) == ("open", None, [1, 2, 3])


@pytest.mark.parametrize("guarded", [True, False])
async def test_a_batch_numbered_before_the_close_comes_after_all_entrants(
    queue: Queue, guarded: bool, monkeypatch: pytest.MonkeyPatch
):
    if not guarded:

        async def ask_nobody(_connection, _room):
            return None

        monkeypatch.setattr(service, "_require_rebuild", ask_nobody)
    await open_lottery(queue)
    await queue.crowd(2)
    line, allocate = queue.state.line, queue.state.line.allocate
    slow: list[Any] = []

    async def slow_one(room, lane, batch_id, *, count):
        numbers = await allocate(room, lane, batch_id, count=count)
        if not slow:
            slow.append(numbers)
            await queue.join("quick")  # lands under a higher number
            await close_entry(queue)
        return numbers

    monkeypatch.setattr(line, "allocate", slow_one)
    [joined] = await queue.join("slow")
    [entrants] = (await queue.state.lottery.published(EVENT)).entrants.values()
    assert (slow[0].first, entrants.n, entrants.taken) == (3, 4, 3)
    assert (joined.join_seq > entrants.n) == guarded
    assert len(await queue.sql("SELECT 1 FROM queue.place")) == 4


@pytest.mark.parametrize("guarded", [True, False])
async def test_closing_waits_for_a_batch_that_is_being_written_and_counts_it(
    queue: Queue, guarded: bool, monkeypatch: pytest.MonkeyPatch
):
    if not guarded:
        monkeypatch.setattr(service, "EXCLUSIVE_LOCK", text("SELECT CAST(:event_id AS text)"))
    monkeypatch.setattr(queue.state.lottery, "_rebuild", queue.state.rooms.read)  # a rebuild would wait as well
    await open_lottery(queue)
    async with queue.db.connect() as blocker:
        await blocker.exec_driver_sql(TELLER.replace(":e", f"'{EVENT}'"))
        slow = asyncio.create_task(queue.join("ann"))
        await wait_until(lambda: waiting_in_the_database(queue))
        await queue.join("quick")
        closing = asyncio.create_task(close_entry(queue))
        done, _ = await asyncio.wait([closing], timeout=0.3 if guarded else 10)
        assert (not done) == guarded
        await blocker.rollback()
    assert [place.join_seq for place in await slow] == [1]
    await closing
    [entrants] = (await queue.state.lottery.published(EVENT)).entrants.values()
    assert (entrants.n, entrants.taken == 2) == (2, guarded)


@pytest.mark.parametrize("guarded", [True, False])
async def test_closing_waits_for_whoever_is_numbered_by_the_database(
    queue: Queue, guarded: bool, monkeypatch: pytest.MonkeyPatch
):
    if not guarded:
        monkeypatch.setattr(service, "LANES", service.LANES.with_for_update(skip_locked=True))
    await open_lottery(queue)
    await queue.crowd(2)
    async with queue.db.begin() as connection:
        await connection.exec_driver_sql("SELECT 1 FROM queue.lane FOR UPDATE")
        await LineRepository(connection, EVENT, 1).insert_places_in_db(0, [("ann", None)])
        closing = asyncio.create_task(close_entry(queue))
        done, _ = await asyncio.wait([closing], timeout=0.3 if guarded else 10)
        assert (not done) == guarded
    await closing
    [entrants] = (await queue.state.lottery.published(EVENT)).entrants.values()
    assert (entrants.n == 3) == guarded


@pytest.mark.parametrize("guarded", [True, False])
async def test_a_lost_redis_keeps_the_places_that_were_drawn(
    queue: Queue, guarded: bool, monkeypatch: pytest.MonkeyPatch
):
    order = await drawn(queue, rate_per_s=9, burst=1, claim_window_s=300)
    await queue.leave((order[4], f"fan-{order[4]}"))
    await queue.tick(4)
    first = await one_by_one(queue, 4)
    await queue.claim((first[0], f"fan-{first[0]}"))
    if not guarded:
        ask = recovery.read_snapshot
        monkeypatch.setattr(
            recovery, "read_snapshot", lambda connection, event_id, draw: ask(connection, event_id, Ranking(1))
        )
    await queue.redis.flushall()
    await queue.tick()
    kept_inside = await queue.status((first[0], f"fan-{first[0]}")) == ["admitted"]
    called = await one_by_one(queue, 40)
    in_order = called == [entry for entry in order if entry != order[4]]
    assert (kept_inside and in_order) == guarded  # now and then a rank is its own entry


async def test_a_process_started_after_the_draw_goes_on_by_rank(queue: Queue, another):
    order = await drawn(queue, rate_per_s=9, burst=1)
    other = another()
    await other.state.rooms.refresh()
    other.time_ms = queue.time_ms
    await other.tick(4)
    assert await one_by_one(other, 15) == order
    assert await other.status((order[0], f"fan-{order[0]}")) == ["ready"]


@pytest.mark.parametrize("guarded", [True, False])
async def test_a_gatekeeper_that_has_not_heard_of_the_draw_calls_nobody_by_its_number(
    queue: Queue, another, guarded: bool, monkeypatch: pytest.MonkeyPatch
):
    if not guarded:
        monkeypatch.setattr(Ranking, "epoch_token", property(lambda draw: str(draw.epoch)))
    await open_lottery(queue, rate_per_s=9, burst=1)
    await queue.crowd(12)
    await close_entry(queue)
    other = another()
    await other.state.rooms.refresh()
    queue.later(100)
    await draw(queue)
    order = (await queue.state.rooms.get(EVENT)).ranking
    other.time_ms = queue.time_ms
    await other.tick(41)
    assert ((await one_by_one(other, 16)) == [order.entry(0, rank) for rank in range(1, 13)]) == guarded


async def test_each_lane_is_drawn_for_itself(queue: Queue):
    await open_lottery(queue)
    await queue.sql("INSERT INTO queue.lane VALUES (:event_id, 1, 1, 0)", event_id=EVENT)
    await queue.state.rooms.read(EVENT)
    await queue.crowd(40)
    await queue.crowd(40, name="vip", lane=1)
    await close_entry(queue)
    queue.later(100)
    published = await draw(queue)
    assert {lane: of.n for lane, of in published.entrants.items()} == {0: 40, 1: 40}
    order = (await queue.state.rooms.get(EVENT)).ranking
    lanes = [[order.rank(lane, entry) for entry in range(1, 41)] for lane in (0, 1)]
    assert sorted(lanes[0]) == sorted(lanes[1]) == list(range(1, 41))
    assert lanes[0] != lanes[1]
    await queue.tick(41)
    await queue.tick()
    assert await queue.claim((7, "fan-7"))
    assert len(await queue.sql("SELECT 1 FROM queue.admission")) == 80


async def test_who_comes_back_after_the_draw_is_told_of_the_call(queue: Queue):
    order = await drawn(queue, entrants_n=30, max_active=5)
    await queue.tick(4)
    await queue.tick()
    back = [await queue.join(f"fan-{entry}", may_be_known=True) for entry in order[:7]]
    assert [(one.join_seq, one.status) for [one] in back] == [
        *((entry, "ready") for entry in order[:5]), *((entry, "waiting") for entry in order[5:7]),
    ]  # fmt: skip


async def test_who_bypasses_a_drawn_line_is_called_under_the_own_number(queue: Queue):
    order = await drawn(queue, rate_per_s=0)
    await queue.configure(rollout_percent=0.0)
    await queue.tick(4)
    assert await queue.status((order[5], f"fan-{order[5]}")) == ["ready"]
    await queue.tick()
    assert await calls(queue) == [order[5]]
    [claimed] = await queue.claim((order[5], f"fan-{order[5]}"))
    assert claimed.jti == f"1-0-{order[5]}-1"


async def test_who_left_before_the_draw_stays_away_under_any_rank(queue: Queue):
    await open_lottery(queue)
    await queue.crowd(6)
    await queue.leave((2, "fan-2"), (5, "fan-5"))
    await close_entry(queue)
    queue.later(100)
    assert (await draw(queue)).entrants[0].taken == 6
    await queue.tick(41)
    await queue.tick()
    assert sorted(await calls(queue)) == [1, 3, 4, 6]
    assert await queue.status((2, "fan-2"), (5, "fan-5")) == ["left", "left"]


async def test_entrants_that_nobody_finished_counting_are_counted_by_the_next(
    queue: Queue, another, monkeypatch: pytest.MonkeyPatch
):
    await open_lottery(queue)
    await queue.crowd(3)

    async def dies(_event_id):
        raise SystemError

    monkeypatch.setattr(queue.state.lottery, "count", dies)
    with pytest.raises(SystemError):
        await close_entry(queue)
    other = another()
    await other.state.rooms.refresh()
    assert (await other.state.lottery.published(EVENT)).entrants == {}
    await other.state.lottery.advance()
    first = await other.state.lottery.published(EVENT)
    assert (first.entrants[0].n, first.stage) == (3, "closed")
    await other.state.lottery.count(EVENT)
    assert await other.state.lottery.published(EVENT) == first


async def test_it_is_drawn_once(queue: Queue):
    await drawn(queue)
    once = await queue.state.lottery.published(EVENT)
    generation = (await queue.state.rooms.get(EVENT)).generation
    assert await draw(queue) == once
    with pytest.raises(RoomStateConflict, match="another value"):
        await draw(queue, "a nicer value")
    assert (await queue.state.rooms.get(EVENT)).generation == generation
    assert len(await queue.sql("SELECT 1 FROM queue.room_audit_log WHERE action = 'draw'")) == 1


async def test_it_is_not_drawn_too_early(queue: Queue):
    await open_lottery(queue)
    await queue.crowd(3)
    with pytest.raises(RoomStateConflict, match="not closed"):
        await draw(queue)
    await close_entry(queue)
    with pytest.raises(RoomStateConflict, match="not known before"):
        await draw(queue)
    assert (await queue.state.lottery.published(EVENT)).seed is None


async def test_who_was_counted_too_late_is_not_drawn(queue: Queue):
    await open_lottery(queue)
    await queue.crowd(3)
    queue.later(250)
    await queue.state.lottery.advance()
    with pytest.raises(RoomStateConflict, match="not published before"):
        await draw(queue)


async def test_the_seed_is_nowhere_to_be_seen_before_the_draw(queue: Queue):
    await open_lottery(queue)
    await queue.crowd(3)
    await close_entry(queue)
    [(seed, blind)] = await queue.sql("SELECT encode(seed, 'hex'), encode(blind, 'hex') FROM queue.lottery")
    room = await queue.state.rooms.read(EVENT)
    frame = await queue.tick()
    published = await queue.state.lottery.published(EVENT)
    seen = f"{room} {room.configuration()} {frame} {published} {await queue.room_hash()}"
    assert seed not in seen
    assert blind not in seen
    assert frame.lottery is not None
    assert (frame.lottery.stage, frame.lottery.lanes) == ("closed", {})


async def test_the_rules_bind_from_the_first_place_on(queue: Queue):
    await open_lottery(queue)
    first = await queue.state.lottery.published(EVENT)
    queue.later(10)
    await open_lottery(queue)
    second = await queue.state.lottery.published(EVENT)
    assert second.commitment != first.commitment, "other rules, another seed"
    await queue.crowd(1)
    queue.later(10)
    with pytest.raises(RoomStateConflict, match="joined under the present order"):
        await open_lottery(queue)
    with pytest.raises(RoomStateConflict, match="joined under the present order"):
        await queue.open()
    assert await queue.state.lottery.published(EVENT) == second
    await queue.state.rooms.reset(EVENT, actor="test", reason=None)
    third = await queue.state.lottery.published(EVENT)
    assert (third.epoch, third.stage, third.commitment != second.commitment) == (2, "open", True)


async def test_an_entrant_proves_to_be_counted(queue: Queue):
    await open_lottery(queue)
    await queue.crowd(5)
    question = ProofQuestion(event_id=EVENT, epoch=1, place=PlaceRef(lane=0, join_seq=4, holder="fan-4"))

    async def ask(**changes):
        place = question.place.model_copy(update=changes)
        return await prove_entry(queue.state.rooms, question.model_copy(update={"place": place}))

    with pytest.raises(NotEntered, match="still being counted"):
        await ask()
    await close_entry(queue)
    await queue.join("late")
    published, proof = await queue.state.lottery.published(EVENT), await ask()
    assert check(published, Evidence(proof=proof))[-1].holds
    assert "fan-4" not in proof.model_dump_json()
    forged = proof.model_copy(update={"entry": 5})
    assert check(published, Evidence(proof=forged))[-1].holds is False
    with pytest.raises(BadCredential):
        await ask(holder="fan-5")
    with pytest.raises(NotEntered, match="after entry had closed"):
        await ask(join_seq=6, holder="late")


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 17])
async def test_the_hash_is_the_same_however_it_is_cut(queue: Queue, count: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("services.queue.lottery.entrants.CHUNK", 4)
    await open_lottery(queue)
    if count:
        await queue.crowd(count)
    await close_entry(queue)
    published = await queue.state.lottery.published(EVENT)
    assert published.entrants[0].n == count
    for entry in range(1, count + 1):
        place = PlaceRef(lane=0, join_seq=entry, holder=f"fan-{entry}")
        proof = await prove_entry(queue.state.rooms, ProofQuestion(event_id=EVENT, epoch=1, place=place))
        assert check(published, Evidence(proof=proof))[-1].holds


async def test_a_line_without_a_lottery_has_none(queue: Queue):
    await queue.open()
    await queue.state.lottery.advance()
    with pytest.raises(NoLottery):
        await queue.state.lottery.published(EVENT)
    with pytest.raises(NoLottery):
        await draw(queue)


async def test_entry_closes_while_redis_is_away(queue: Queue, redis: Redis, monkeypatch: pytest.MonkeyPatch):
    await open_lottery(queue)
    await queue.crowd(3)

    async def away(_event_id):
        raise ConnectionError

    with monkeypatch.context() as patched:
        patched.setattr(queue.state.recovery, "rebuild", away)
        patched.setattr(service, "REDIS_AWAY", (ConnectionError,))
        await close_entry(queue)
    assert (await queue.state.lottery.published(EVENT)).entrants[0].n == 3
    before = (await queue.room_hash())["generation"]
    await queue.state.recovery.watch()
    assert (await queue.room_hash())["generation"] != before
    assert [place.join_seq for place in await queue.join("late")] == [4]


def test_rules_must_be_possible():
    good = {
        "entry_closes_at": "2027-01-01T10:00:00Z",
        "public_value": {"what": "x", "known_at": "2027-01-01T11:00:00Z"},
    }
    assert LotteryRules.model_validate(good).public_value.what == "x"
    with pytest.raises(ValueError, match="before the public value"):
        LotteryRules.model_validate({**good, "entry_closes_at": "2027-01-01T12:00:00Z"})


async def test_a_lottery_that_nobody_could_verify_is_refused(queue: Queue) -> None:
    """Its seed would be committed to after entry opened, whichever way the opening comes to be past."""
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
        await rooms.reset(EVENT, actor="test", reason=None)
    assert (await rooms.read(EVENT)).epoch == 1
    await rooms.transition(EVENT, "close", actor="test", reason=None)
    await rooms.reset(EVENT, actor="test", reason=None)
    with pytest.raises(InvalidRequest, match="is past"):
        await rooms.transition(EVENT, "open", actor="test", reason=None)
    await queue.configure(queue_opens_at=None)
    await rooms.transition(EVENT, "open", actor="test", reason=None)


async def test_applying_an_open_lotterys_file_again_changes_nothing(queue: Queue) -> None:
    await open_lottery(queue, queue_opens_at=rfc3339(queue.time_ms + 60_000))
    await queue.sql("UPDATE queue.lottery SET committed_at = committed_at - interval '1 day'")
    await queue.sql("UPDATE queue.room SET queue_opens_at = clock_timestamp() - interval '1 minute'")
    before = await queue.state.rooms.read(EVENT)
    assert before.queue_opens_at is not None
    await open_lottery(queue, queue_opens_at=before.queue_opens_at.isoformat())
    assert (await queue.state.rooms.read(EVENT)).version == before.version
