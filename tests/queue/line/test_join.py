"""Numbers of places: unique and in order; no later batch overtakes one that is being inserted."""

import asyncio
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

from services.queue.line.redis_line import Allocation
from services.queue.places.join import insert_places
from shared.errors.problems import Overloaded, Unavailable
from tests.queue.conftest import EVENT, Queue
from tests.support.wait import wait_until


async def allocate(queue: Queue, batch_id: str, count: int = 2) -> Allocation:
    numbers = await queue.state.line.allocate(await queue.state.rooms.get(EVENT), 0, batch_id, count=count)
    assert numbers.outcome == "ok", numbers
    return numbers


async def commit(queue: Queue, numbers: Allocation) -> None:
    """Inserts the batch's places and commits them in Redis."""
    join_seqs = range(numbers.first, numbers.first + numbers.granted)
    for n in join_seqs:
        await queue.insert_place(n, f"slow-{n}")
    await queue.state.line.commit_join(await queue.state.rooms.get(EVENT), 0, numbers.member, join_seqs)


async def test_a_repeated_batch_gets_the_same_numbers(queue: Queue):
    await queue.open()
    first = await allocate(queue, "batch-a", 3)
    assert await allocate(queue, "batch-a", 3) == first
    assert (await allocate(queue, "batch-b", 3)).first == 4


async def test_a_batch_sent_twice_inserts_its_places_once(queue: Queue):
    await queue.open()
    first = await queue.join("ann", "ben", batch_id="batch-twice")
    again = await queue.join("ann", "ben", batch_id="batch-twice")
    assert [(j.word, j.join_seq) for j in first] == [("joined", 1), ("joined", 2)]
    assert [(j.word, j.join_seq) for j in again] == [("known", 1), ("known", 2)]
    assert len(await queue.sql("SELECT 1 FROM queue.place")) == 2


async def test_a_batch_sent_again_while_it_is_inserted_is_answered_and_renewed_until_both_are_done(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
):
    """A gateway sends it again when its connection breaks; the first of the two then loses its database, too."""
    await queue.open()
    await queue.end_assumed_liveness()
    begun, lost, goes_on = list[int](), asyncio.Event(), asyncio.Event()

    async def insert_late(*arguments: Any) -> Any:
        begun.append(number := len(begun))
        await (goes_on if number else lost).wait()
        if number == 0:
            raise Unavailable
        return await insert_places(*arguments)

    monkeypatch.setattr("services.queue.places.join.insert_places", insert_late)
    sent = [asyncio.create_task(queue.join("ann", batch_id="batch-again")) for _ in range(3)]
    await wait_until(lambda: len(begun) == 3)
    lost.set()
    await wait_until(lambda: any(one.done() for one in sent))
    await commit(queue, await allocate(queue, "quick"))
    for _ in range(4):
        await queue.tick(3.0)
        await queue.state.joins.renew()
    assert await queue.called() == []
    goes_on.set()
    answers = await asyncio.gather(*sent, return_exceptions=True)
    assert [type(answer) for answer in answers].count(Unavailable) == 1
    assert {answer[0].join_seq for answer in answers if isinstance(answer, list)} == {1}
    await queue.tick()
    assert await queue.called() == [1, 2, 3]


async def test_a_later_batch_that_is_committed_first_does_not_overtake_an_earlier_one(queue: Queue):
    await queue.open()
    slow, quick = await allocate(queue, "slow"), await allocate(queue, "quick")
    await commit(queue, quick)
    frame = await queue.tick()
    assert await queue.called() == []
    assert frame.lanes[0].head_seq == 0
    await commit(queue, slow)
    await queue.tick()
    assert await queue.called() == [1, 2, 3, 4]


async def test_the_line_waits_five_seconds_for_a_batch_whose_process_died(queue: Queue):
    await queue.open()
    await queue.end_assumed_liveness()
    await allocate(queue, "dead")
    await commit(queue, await allocate(queue, "alive"))
    await queue.tick(4.0)
    assert await queue.called() == []
    await queue.tick(2.0)
    assert await queue.called() == [3, 4]


async def test_the_line_waits_for_a_slow_batch_while_its_process_renews_it(queue: Queue):
    """The insert takes twelve seconds; without heartbeats later batches overtake it."""
    await queue.open()
    await queue.end_assumed_liveness()
    async with queue.blocked_join("slow") as joining:
        await queue.join("quick-1", "quick-2")
        for _ in range(4):
            await queue.tick(3.0)
            await queue.state.joins.renew()
        assert await queue.called() == []
    await joining
    await queue.tick()
    assert await queue.called() == [1, 2, 3]


async def test_numbers_that_were_never_committed_are_gaps_and_cost_no_call(queue: Queue):
    await queue.open(rate_per_s=2, burst=2, max_active=2)
    await allocate(queue, "dead", 2)
    await commit(queue, await allocate(queue, "alive"))
    await queue.tick(10)
    await queue.tick(1)
    assert await queue.called() == [3, 4]
    assert (await queue.sql("SELECT join_seq FROM queue.admission ORDER BY 1")) == [(3,), (4,)]


async def test_a_batch_committed_after_it_was_given_up_is_called(queue: Queue):
    await queue.open()
    late = await allocate(queue, "late")
    await queue.tick(10)
    await queue.tick()
    await commit(queue, late)
    await queue.tick()
    assert await queue.called() == [1, 2]


async def test_a_call_saved_after_its_late_batch_was_committed_counts_once(queue: Queue):
    await queue.open()
    late = await allocate(queue, "late")
    queue.advance_clock(10)
    ticked = await queue.tick_unsaved()
    assert [change.join_seq for change in ticked.changes] == [1, 2]
    await commit(queue, late)
    for _ in range(3):
        await queue.tick()
    assert await queue.called() == [1, 2]
    assert len(await queue.sql("SELECT 1 FROM queue.admission")) == 2
    assert (await queue.room_hash())["calls"] == "2", "the call is not made again"


async def test_a_number_is_never_given_twice_when_redis_returns_to_an_older_state(queue: Queue):
    await queue.open(fans=5)
    await queue.write_room_hash({"join_seq:0": 2})
    joined = await queue.join("late-1", "late-2", "late-3")
    rows = await queue.sql("SELECT join_seq FROM queue.place")
    assert len(set(rows)) == len(rows) == 8
    assert sorted(place.join_seq for place in joined) == [6, 7, 8]
    assert int((await queue.room_hash())["join_seq:0"]) == 8


async def test_a_full_line_refuses_joins(queue: Queue):
    await queue.open(rate_per_s=0, max_line=3)
    joined = await queue.join_fans(5)
    assert [place.word for place in joined] == ["joined"] * 3 + ["line-full"] * 2
    assert [place.word for place in await queue.join("late")] == ["line-full"]


async def test_a_fan_known_to_the_database_takes_no_number(queue: Queue):
    await queue.open("ann", "ben", rate_per_s=0)
    again = await queue.join("ben", "cyd", may_be_known=True)
    assert [(j.word, j.join_seq) for j in again] == [("known", 2), ("joined", 3)]


async def test_one_holder_twice_in_a_batch_has_one_place(queue: Queue):
    await queue.open(rate_per_s=0)
    joined = await queue.join("ann", "ann")
    assert [j.join_seq for j in joined] == [1, 1]


@pytest.mark.parametrize(("holder", "known"), [("ann", False), ("user.ada", True)])
async def test_twenty_concurrent_joins_of_one_fan_make_one_place(queue: Queue, new_queue, holder: str, known: bool):
    await queue.open(rate_per_s=0)
    others = [new_queue() for _ in range(4)]
    joined = await asyncio.gather(*(others[i % 4].join(holder, may_be_known=known) for i in range(20)))
    assert len({j[0].join_seq for j in joined}) == 1
    assert sum(j[0].word == "joined" for j in joined) == 1
    assert len(await queue.sql("SELECT 1 FROM queue.place")) == 1


async def test_committing_joins_sets_exactly_their_bits(queue: Queue):
    await queue.open(rate_per_s=0)
    room = await queue.state.rooms.get(EVENT)
    await queue.state.line.commit_join(room, 0, "", [3, 9, 10, 11, 12, 13, 14, 15, 16, 17, 40])
    bitmaps = [await queue.redis.get(f"queue:{{{EVENT}}}:1:0:alive:{slot}") or b"" for slot in range(3)]
    [bits] = [raw for raw in bitmaps if len(raw) > 1]
    numbers = [i for i in range(1, len(bits) * 8) if bits[i // 8] & (128 >> i % 8)]
    assert numbers == [3, 9, 10, 11, 12, 13, 14, 15, 16, 17, 40]


async def test_a_repeated_join_is_a_heartbeat(queue: Queue) -> None:
    """Also if the holder is found only after the insert was refused, and not before."""
    await queue.open(fans=2, max_active=0)
    await queue.end_assumed_liveness()
    await queue.join("fan-1")
    await queue.join("fan-2", may_be_known=True)
    await queue.configure(max_active=10)
    await queue.tick()
    assert await queue.called() == [1, 2]


@pytest.mark.parametrize("room", [{"queue_opens_at": "2999-01-01T00:00:00Z"}, {"sale_ends_at": "2001-01-01T00:00:00Z"}])
async def test_no_number_is_given_outside_the_opening_hours(queue: Queue, room: dict[str, Any]):
    await queue.open(**room)
    numbers = await queue.state.line.allocate(await queue.state.rooms.get(EVENT), 0, "batch", count=1)
    assert numbers.outcome == "closed"


async def test_joins_beyond_the_limit_of_waiting_batches_are_refused(queue: Queue):
    await queue.open()
    queue.state.joins._in_flight = queue.state.joins.in_flight_max
    with pytest.raises(Overloaded):
        await queue.join("ann")
    queue.state.joins._in_flight -= 1
    assert [joined.word for joined in await queue.join("ann")] == ["joined"]


async def test_one_fan_has_one_live_place_by_the_database_itself(queue: Queue):
    await queue.open("ann")
    with pytest.raises(IntegrityError, match="uq_place_live_holder"):
        await queue.insert_place(7, "ann")


async def test_a_heartbeat_of_a_number_that_nobody_has_is_ignored(queue: Queue):
    """Else anybody could make Redis hold a bitmap of any length."""
    await queue.open("ann")
    await queue.heartbeat(1, 3_000_000)
    lengths = [await queue.redis.strlen(f"queue:{{{EVENT}}}:1:0:alive:{window}") for window in range(3)]
    assert 0 < max(lengths) < 100
