"""Numbers of places: unique and in order; no later batch overtakes one that is being inserted."""

import asyncio
from typing import Any

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from services.queue.line.redis_line import Allocation
from services.queue.line.repository import LineRepository
from services.queue.places.join import INSERT_NEW_PLACES, INSERT_PLACES, insert_places
from shared.contracts.queue import HoldersQuestion, Joined, JoinRequest
from shared.errors.problems import Overloaded, Unavailable
from shared.postgres.engine import driver_connection
from tests.queue.conftest import EVENT, TEST, Queue
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


# -- signed-in fans ----------------------------------------------------------------------------------------------------


ADA = "user.ada"


async def join_user(queue: Queue, holder: str = ADA, *, user_id: str | None = "ada") -> Joined:
    [joined] = await queue.join_batch([JoinRequest(holder=holder, user_id=user_id, may_be_known=True)])
    return joined


async def find(queue: Queue, *holders: str, epoch_min: int = 0) -> tuple[int, list[int | None]]:
    question = HoldersQuestion(event_id=EVENT, epoch_min=epoch_min, holders=list(holders))
    found = await queue.state.claims.find(question)
    return found.epoch, [place.join_seq if place else None for place in found.places]


async def test_only_users_are_found(queue: Queue):
    await queue.open("anonymous")
    await join_user(queue)
    assert await find(queue, ADA, "anonymous", "user.nobody", ADA) == (1, [2, None, None, 2])
    assert await queue.sql("SELECT user_id FROM queue.place ORDER BY join_seq") == [(None,), ("ada",)]


async def test_an_ended_place_is_found_unless_there_is_a_live_one(queue: Queue):
    await queue.open()
    first = await join_user(queue)
    await queue.leave((first.join_seq, ADA))
    assert await find(queue, ADA) == (1, [first.join_seq])
    second = await join_user(queue, user_id=None)
    assert second.join_seq > first.join_seq
    assert await find(queue, ADA) == (1, [second.join_seq]), "a place joined by cookie is the user's, too"
    await queue.leave((second.join_seq, ADA))
    assert await find(queue, ADA) == (1, [second.join_seq])


async def test_after_a_reset_users_are_found_in_the_new_line(queue: Queue, new_queue):
    await queue.open()
    await join_user(queue)
    other = new_queue()
    assert await find(other, ADA) == (1, [1])
    await queue.state.rooms.reset(EVENT, TEST)
    assert await find(other, ADA) == (1, [1]), "it does not know of the reset yet"
    assert await find(other, ADA, epoch_min=2) == (2, [None])


async def test_a_room_for_signed_in_fans_refuses_others_and_keeps_their_earlier_places(queue: Queue):
    await queue.open()
    [early] = await queue.join("early", may_be_known=True)
    await queue.configure(entry={"signed_in_only": True})
    [back, late] = await queue.join("early", "late", may_be_known=True)
    assert (back.word, back.join_seq) == ("known", early.join_seq)
    assert late.word == "sign-in-needed"
    assert (await join_user(queue)).word == "joined"
    assert [one.word for one in await queue.join("unknown", "to-us")] == ["sign-in-needed"] * 2
    await queue.configure(entry={"signed_in_only": False})
    assert [one.word for one in await queue.join("late")] == ["joined"]
    assert [row.holder for row in await queue.sql("SELECT holder FROM queue.place ORDER BY join_seq")] == [
        "early",
        ADA,
        "late",
    ]


# -- inserting a batch -------------------------------------------------------------------------------------------------


async def test_a_rebuild_waits_for_a_batch_that_is_being_written(queue: Queue, new_queue):
    await queue.open(rate_per_s=0)
    async with queue.blocked_join("ann") as joining:
        await queue.redis.flushall()
        rebuild = asyncio.create_task(new_queue().state.recovery.rebuild(EVENT))
        done, _ = await asyncio.wait([rebuild], timeout=0.3)
        assert not done
    assert [place.join_seq for place in await joining] == [1]
    await rebuild
    assert (await queue.room_hash())["join_seq:0"] == "1"


async def test_events_name_the_places_that_were_inserted(queue: Queue):
    await queue.open("ann", rate_per_s=0)
    joined = await queue.join("ben", "ann", "cyd")
    assert [(place.word, place.join_seq) for place in joined] == [("joined", 2), ("known", 1), ("joined", 4)]
    await queue.join("ann")
    events = await queue.sql("SELECT events -> 0 -> 'after' -> 'join_seqs' FROM queue.outbox_batch ORDER BY id")
    assert events == [([[1, 1]],), ([[2, 2], [4, 4]],)]


async def test_places_wake_the_relay_of_their_process(queue: Queue, woken: list[str]):
    await queue.open(rate_per_s=0)
    await queue.join("ann")
    assert woken == ["queue", "queue"], "as the join begins, and as its event is written"


async def test_only_a_batch_with_a_conflict_is_inserted_by_the_statement_that_skips_it(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
):
    names = {INSERT_NEW_PLACES: "new", INSERT_PLACES: "skipping"}
    ran, fetch = [], asyncpg.Connection.fetch

    def recorded(self, query, *values, **options):
        ran.extend([names[query]] if query in names else [])
        return fetch(self, query, *values, **options)

    monkeypatch.setattr(asyncpg.Connection, "fetch", recorded)
    await queue.open("ann", rate_per_s=0)
    assert ran == ["new"]
    assert [place.word for place in await queue.join("ben", "ann")] == ["joined", "known"]
    assert ran == ["new", "new", "skipping"]


async def test_places_are_looked_up_without_a_transaction(queue: Queue):
    await queue.open("ann", rate_per_s=0)
    async with LineRepository.reading(queue.state.joins.db, EVENT, 1) as repository:
        assert await repository.live_places(["ann"]) == {"ann": (0, 1)}
        assert not (await driver_connection(repository._connection)).is_in_transaction()
    async with queue.state.joins.db.begin() as connection:
        await connection.execute(text("SELECT 1"))
        assert (await driver_connection(connection)).is_in_transaction()


async def test_a_cancelled_batch_inserts_no_place(queue: Queue):
    await queue.open(rate_per_s=0)
    async with queue.blocked_join("ann") as joining:
        joining.cancel()
        await asyncio.wait([joining])
    places = await asyncio.gather(*(queue.join(f"fan-{i}") for i in range(8)))
    rows = await queue.sql("SELECT join_seq FROM queue.place WHERE holder <> 'ann'")
    assert sorted(row.join_seq for row in rows) == sorted(place.join_seq for (place,) in places)


async def test_a_connection_lost_during_an_insert_is_reported_and_not_used_again(queue: Queue):
    await queue.open(rate_per_s=0)
    async with queue.blocked_join("ann") as joining:
        await queue.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'WITH placed%'"
                        " OR query LIKE '-- Inserts a batch of places%'")  # fmt: skip
        with pytest.raises(Unavailable):
            await joining
    assert [place.word for place in await queue.join("ann")] == ["joined"]


async def test_a_join_of_an_unknown_lane_does_not_fail_the_others(queue: Queue):
    await queue.open(rate_per_s=0)
    [unknown] = await queue.join("ann", lane=7)
    assert unknown.word == "unknown-lane"
    joins = [JoinRequest(holder="ben"), JoinRequest(holder="cyd", lane=7), JoinRequest(holder="dan")]
    assert [(place.word, place.join_seq) for place in await queue.join_batch(joins)] == [
        ("joined", 1), ("unknown-lane", 0), ("joined", 2),
    ]  # fmt: skip


async def test_a_batch_that_lost_a_deadlock_is_inserted_again(queue: Queue):
    """Another transaction inserts the same holders in another order; PostgreSQL aborts one of the two, and the batch
    begins again. A waiting transaction checks for a deadlock once, after a second: by then the other must wait, too.
    """
    await queue.open(rate_per_s=0)
    insert = "INSERT INTO queue.place (event_id, epoch, lane, join_seq, holder) VALUES ('{}', 1, 0, {}, '{}')"
    async with queue.db.connect() as other:
        await other.exec_driver_sql("SET LOCAL deadlock_timeout = '10s'")
        await other.exec_driver_sql(insert.format(EVENT, 98, "ben"))
        joining = asyncio.create_task(queue.join("ann", "ben"))
        await wait_until(queue.insert_waits)
        await other.exec_driver_sql(insert.format(EVENT, 99, "ann"))
        await other.rollback()
    assert [place.join_seq for place in await joining] == [1, 2]
