"""Entry to a lottery: it closes once, batches in progress are counted or come later, and entrants get proofs."""

import asyncio
from typing import Any

import pytest
from redis.asyncio import Redis

from onsale.lottery_check import Evidence, check
from services.queue.line.repository import LineRepository
from services.queue.lottery import service
from services.queue.lottery.entrants import prove_entry
from shared.contracts.lottery import Entrants
from shared.contracts.queue import PlaceRef, ProofQuestion
from shared.errors.problems import BadCredential, NotEntered
from tests.queue.conftest import EVENT, Queue
from tests.queue.lottery.draws import close_entry, open_lottery


async def counted_entrants(queue: Queue) -> Entrants:
    [entrants] = (await queue.state.lottery.published(EVENT)).entrants.values()
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
    monkeypatch.setattr(queue.state.lottery, "_rebuild", queue.state.rooms.read)  # a rebuild would wait, too
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

    async def die(_event_id):
        raise SystemError

    monkeypatch.setattr(queue.state.lottery, "count", die)
    with pytest.raises(SystemError):
        await close_entry(queue)
    other = new_queue()
    await other.state.rooms.refresh()
    assert (await other.state.lottery.published(EVENT)).entrants == {}
    await other.state.lottery.advance()
    first = await other.state.lottery.published(EVENT)
    assert (first.entrants[0].n, first.stage) == (3, "closed")
    await other.state.lottery.count(EVENT)
    assert await other.state.lottery.published(EVENT) == first


async def test_an_entrant_gets_a_proof_of_entry(queue: Queue):
    await open_lottery(queue, fans=5)
    question = ProofQuestion(event_id=EVENT, epoch=1, place=PlaceRef(lane=0, join_seq=4, holder="fan-4"))

    async def prove(**changes):
        place = question.place.model_copy(update=changes)
        return await prove_entry(queue.state.rooms, question.model_copy(update={"place": place}))

    with pytest.raises(NotEntered, match="still being counted"):
        await prove()
    await close_entry(queue)
    await queue.join("late")
    published, proof = await queue.state.lottery.published(EVENT), await prove()
    assert check(published, Evidence(proof=proof))[-1].holds
    assert "fan-4" not in proof.model_dump_json()
    forged = proof.model_copy(update={"entry": 5})
    assert check(published, Evidence(proof=forged))[-1].holds is False
    with pytest.raises(BadCredential):
        await prove(holder="fan-5")
    with pytest.raises(NotEntered, match="after entry had closed"):
        await prove(join_seq=6, holder="late")


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 17])
async def test_proofs_hold_for_entrants_that_were_counted_in_chunks(
    queue: Queue, count: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("services.queue.lottery.entrants.CHUNK", 4)
    await open_lottery(queue)
    if count:
        await queue.join_fans(count)
    await close_entry(queue)
    published = await queue.state.lottery.published(EVENT)
    assert published.entrants[0].n == count
    for entry in range(1, count + 1):
        place = PlaceRef(lane=0, join_seq=entry, holder=f"fan-{entry}")
        proof = await prove_entry(queue.state.rooms, ProofQuestion(event_id=EVENT, epoch=1, place=place))
        assert check(published, Evidence(proof=proof))[-1].holds


async def test_entry_closes_while_redis_is_unavailable(queue: Queue, redis: Redis, monkeypatch: pytest.MonkeyPatch):
    await open_lottery(queue, fans=3)

    async def unavailable(_event_id):
        raise ConnectionError

    with monkeypatch.context() as patched:
        patched.setattr(queue.state.recovery, "rebuild", unavailable)
        patched.setattr(service, "REDIS_AWAY", (ConnectionError,))
        await close_entry(queue)
    assert (await queue.state.lottery.published(EVENT)).entrants[0].n == 3
    before = (await queue.room_hash())["generation"]
    await queue.state.recovery.watch()
    assert (await queue.room_hash())["generation"] != before
    assert [place.join_seq for place in await queue.join("late")] == [4]
