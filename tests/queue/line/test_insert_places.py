"""Inserting a batch of places: under the fence, with its event; one bad join does not fail the others."""

import asyncio

import asyncpg
import pytest
from sqlalchemy import text

from services.queue.line.repository import LineRepository
from services.queue.places.join import INSERT_NEW_PLACES, INSERT_PLACES
from shared.contracts.queue import JoinRequest
from shared.errors.problems import Unavailable
from shared.postgres.engine import driver_connection
from tests.queue.conftest import EVENT, Queue
from tests.support.wait import wait_until


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
