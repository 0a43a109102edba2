"""Inserting a batch of places: under the fence, with its event, and no member makes another fail."""

import asyncio

import pytest

from services.queue.line import insert_places
from shared.contracts.queue import JoinBatch, JoinRequest
from shared.web.problems import Unavailable
from tests.queue.conftest import EVENT, Queue
from tests.support.wait import wait_until

TELLER = "INSERT INTO queue.place (event_id, epoch, lane, join_seq, holder) VALUES (:e, 1, 0, 99, 'ann')"


async def waiting_in_the_database(queue: Queue) -> bool:
    return bool(
        await queue.sql("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%placed%'")
    )


@pytest.mark.parametrize("guarded", [True, False])
async def test_a_rebuild_waits_for_a_batch_that_is_being_written(
    queue: Queue, another, guarded: bool, monkeypatch: pytest.MonkeyPatch
):
    if not guarded:
        monkeypatch.setattr(insert_places, "BEGIN_SHARED", "BEGIN")
    await queue.open(rate_per_s=0)
    async with queue.db.connect() as blocker:
        await blocker.exec_driver_sql(TELLER.replace(":e", f"'{EVENT}'"))
        joining = asyncio.create_task(queue.join("ann"))
        await wait_until(lambda: waiting_in_the_database(queue))
        await queue.redis.flushall()
        rebuild = asyncio.create_task(another().state.recovery.rebuild(EVENT))
        done, _ = await asyncio.wait([rebuild], timeout=0.3)
        assert (not done) == guarded
        await blocker.rollback()
    assert [place.join_seq for place in await joining] == [1]
    await rebuild
    assert (await queue.room_hash())["join_seq:0"] == "1"


async def test_events_name_the_places_that_were_inserted(queue: Queue):
    await queue.open(rate_per_s=0)
    await queue.join("ann")
    joined = await queue.join("ben", "ann", "cyd")
    assert [(place.word, place.join_seq) for place in joined] == [("joined", 2), ("known", 1), ("joined", 4)]
    await queue.join("ann")
    events = await queue.sql("SELECT body -> 'after' -> 'join_seqs' FROM queue.outbox ORDER BY id")
    assert events == [([[1, 1]],), ([[2, 2], [4, 4]],)]


async def test_a_batch_that_was_cut_off_leaves_nothing_behind(queue: Queue):
    await queue.open(rate_per_s=0)
    async with queue.db.connect() as blocker:
        await blocker.exec_driver_sql(TELLER.replace(":e", f"'{EVENT}'"))
        joining = asyncio.create_task(queue.join("ann"))
        await wait_until(lambda: waiting_in_the_database(queue))
        joining.cancel()
        await asyncio.wait([joining])
        await blocker.rollback()
    places = await asyncio.gather(*(queue.join(f"fan-{i}") for i in range(8)))
    rows = await queue.sql("SELECT join_seq FROM queue.place WHERE holder <> 'ann'")
    assert sorted(row.join_seq for row in rows) == sorted(place.join_seq for (place,) in places)


async def test_a_connection_lost_while_writing_is_said_and_not_used_again(queue: Queue):
    await queue.open(rate_per_s=0)
    async with queue.db.connect() as blocker:
        await blocker.exec_driver_sql(TELLER.replace(":e", f"'{EVENT}'"))
        joining = asyncio.create_task(queue.join("ann"))
        await wait_until(lambda: waiting_in_the_database(queue))
        await queue.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'WITH placed%'"
                        " OR query LIKE '-- Inserts a batch of places%'")  # fmt: skip
        with pytest.raises(Unavailable):
            await joining
        await blocker.rollback()
    assert [place.word for place in await queue.join("ann")] == ["joined"]


async def test_a_member_who_names_no_lane_of_ours_fails_nobody_else(queue: Queue):
    await queue.open(rate_per_s=0)
    [unknown] = await queue.join("ann", lane=7)
    assert unknown.word == "unknown-lane"
    joins = [JoinRequest(holder="ben"), JoinRequest(holder="cyd", lane=7), JoinRequest(holder="dan")]
    answer = await queue.state.joins.join(JoinBatch(event_id=EVENT, batch_id="batch-mixed", joins=joins))
    assert [(place.word, place.join_seq) for place in answer.joined] == [
        ("joined", 1), ("unknown-lane", 0), ("joined", 2),
    ]  # fmt: skip


async def test_the_loser_of_a_deadlock_is_placed_all_the_same(queue: Queue):
    """Somebody writes the same holders in another order; PostgreSQL ends one of the two, and the batch begins again. It
    looks for a deadlock once a wait, after a second: by then the other must wait too.
    """
    await queue.open(rate_per_s=0)
    theirs = "INSERT INTO queue.place (event_id, epoch, lane, join_seq, holder) VALUES ('{}', 1, 0, {}, '{}')"
    async with queue.db.connect() as somebody:
        await somebody.exec_driver_sql("SET LOCAL deadlock_timeout = '10s'")
        await somebody.exec_driver_sql(theirs.format(EVENT, 98, "ben"))
        joining = asyncio.create_task(queue.join("ann", "ben"))
        await wait_until(lambda: waiting_in_the_database(queue))
        await somebody.exec_driver_sql(theirs.format(EVENT, 99, "ann"))
        await somebody.rollback()
    assert [place.join_seq for place in await joining] == [1, 2]
