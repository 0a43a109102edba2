"""Reconciliation of slots with the database: purchases end their places after an outage, and lost slots are rebuilt."""

import asyncio
from unittest.mock import AsyncMock

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from sqlalchemy import text

from services.queue.line.redis_line import TickEvent
from services.queue.line.repository import LineRepository
from services.queue.places import reconcile
from shared.postgres.engine import statement
from tests.queue.conftest import EVENT, TEST, Inventory, Queue, open_event
from tests.support.wait import row_versions, wait_until, written_since

KEY = f"queue:{{{EVENT}}}:1"
LOSSES = {
    "a session": ("ZREM", f"{KEY}:active", "0:1"),
    "a call": ("ZREM", f"{KEY}:called", "0:3"),
    "nothing, but Redis has a slot of its own": ("ZADD", f"{KEY}:called", 10**15, "0:5"),
}


async def open_line(queue: Queue, **room) -> None:
    """1 and 2 have passes, 3 is called, 4 to 8 wait."""
    await queue.open_and_call(fans=8, max_active=3, claim_window_s=300, **room)
    await queue.claim((1, "fan-1"), (2, "fan-2"))


async def buy(queue: Queue, holder: str) -> None:
    """The order is confirmed, and a minute passes."""
    await queue.confirm_order(holder=holder)
    await queue.purchases().read()
    await queue.sql("UPDATE queue.place SET bought_at = bought_at - interval '1 minute' WHERE ended_at IS NULL")


@pytest.mark.parametrize("unavailable", ["inventory", "gateways", "redis"])
async def test_a_place_that_could_not_be_ended_after_a_purchase_is_ended_by_the_next_run(
    queue: Queue, inventory, unavailable: str, monkeypatch: pytest.MonkeyPatch
):
    async def away(*_args, **_named):
        raise RedisConnectionError

    await open_line(queue)
    inventory.unavailable = unavailable == "inventory"
    with monkeypatch.context() as patched:
        if unavailable == "gateways":
            patched.setattr(queue.state.line.redis, "publish", away)
        elif unavailable == "redis":
            patched.setattr(queue.state.line, "run", away)
        await buy(queue, "fan-1")
    inventory.unavailable = False
    assert "0:1" in await queue.sorted_set("active")
    await queue.state.slot_reconciler.run_once()
    assert await queue.status((1, "fan-1")) == ["completed"]
    assert list(await queue.sorted_set("active")) == ["0:2"]
    await queue.tick()
    assert 4 in await queue.called()
    assert await queue.violations() == []


async def test_a_fan_who_bought_keeps_the_place_while_another_reservation_is_live(queue: Queue, inventory):
    await open_line(queue)
    inventory.held_until_ms["fan-1"] = 10**15
    await buy(queue, "fan-1")
    await queue.state.slot_reconciler.run_once()
    assert await queue.status((1, "fan-1")) == ["admitted"]
    inventory.held_until_ms.clear()
    await queue.state.slot_reconciler.run_once()
    assert await queue.status((1, "fan-1")) == ["completed"]


async def test_a_session_restored_by_a_lagging_replica_is_ended_within_five_seconds(app, admin, redis, postgres):
    """A promoted replica that lags: the database has ended the place, Redis still has its session."""
    await open_event(admin, max_active=1)
    queue = Queue(app.state.deps, postgres, redis, Inventory())
    await queue.join("ann", "ben")
    await wait_until(lambda: _is_claimed(queue))
    session = await queue.sorted_set("active")
    await queue.state.sessions.end_places(EVENT, 1, [(0, 1)], end_reason="completed", unclaimed=False)
    await queue.state.gatekeeper.drain()
    await redis.zadd(f"{KEY}:active", session)
    await redis.zrem(f"{KEY}:called", "0:2")
    await wait_until(lambda: _is_called(queue, 2))
    assert list(await queue.sorted_set("active")) == []


async def _is_claimed(queue: Queue) -> bool:
    return (await queue.claim((1, "ann")))[0].word == "admitted"


async def _is_called(queue: Queue, n: int) -> bool:
    return n in await queue.called()


@pytest.mark.parametrize("loss", LOSSES)
async def test_a_slot_missing_in_redis_or_the_database_rebuilds_redis(queue: Queue, loss: str):
    await open_line(queue)
    slots = await queue.sorted_set("active") | await queue.sorted_set("called")
    await queue.redis.execute_command(*LOSSES[loss])
    assert await queue.violations() != []
    await queue.state.slot_reconciler.run_once()
    await queue.state.slot_reconciler.run_once()
    assert await queue.sorted_set("active") | await queue.sorted_set("called") == slots
    assert await queue.violations() == []
    generation = (await queue.room_hash())["generation"]
    for _ in range(3):
        await queue.state.slot_reconciler.run_once()
    assert (await queue.room_hash())["generation"] == generation, "nothing differs any more"


async def test_a_call_not_yet_saved_is_no_difference(queue: Queue):
    await open_line(queue)
    room = await queue.state.rooms.change(EVENT, {"max_active": 5}, TEST)
    await queue.state.line.configure(room)
    queue.advance_clock(1)
    await queue.tick_unsaved()
    assert await queue.sorted_set("unwritten")
    generation = (await queue.room_hash())["generation"]
    for _ in range(3):
        await queue.state.slot_reconciler.run_once()
    assert (await queue.room_hash())["generation"] == generation


async def test_two_processes_that_see_the_same_loss_rebuild_once(queue: Queue, new_queue):
    await open_line(queue)
    other = new_queue()
    await other.state.rooms.refresh()
    generation = int((await queue.room_hash())["generation"])
    await queue.redis.execute_command(*LOSSES["a session"])
    for _ in range(2):
        await asyncio.gather(*(one.state.slot_reconciler.run_once() for one in (queue, other)))
    assert int((await queue.room_hash())["generation"]) == generation + 1


async def test_a_run_is_bounded_and_the_next_continues_after_it(queue: Queue, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reconcile, "SLOTS_MAX", 2)
    await queue.open_and_call(fans=9, max_active=9, claim_window_s=300)
    await queue.claim(*((n, f"fan-{n}") for n in range(1, 10)))
    await queue.sql("UPDATE queue.place SET bought_at = now() - interval '1 minute' WHERE join_seq IN (3, 9)")
    for _ in range(5):
        await queue.state.slot_reconciler.run_once()
    states = await queue.status((3, "fan-3"), (8, "fan-8"), (9, "fan-9"))
    assert states == ["completed", "admitted", "completed"]


@pytest.mark.parametrize("analyzed", [False, True])
@pytest.mark.parametrize("name", ["count_slots", "open_slots"])
async def test_reading_the_slots_reads_no_ended_calls(queue: Queue, name: str, analyzed: bool):
    """But for the first time: until then nobody knows since when calls may be open. With old statistics or none the
    calls may be read once, never the whole line.
    """
    await open_line(queue)
    await queue.sql(
        "INSERT INTO queue.place (event_id, epoch, lane, join_seq, holder, ended_at, end_reason) "
        "SELECT :event_id, 1, 0, n, 'gone-' || n, now(), 'completed' FROM generate_series(1000, 51000) AS n",
        event_id=EVENT,
    )
    await queue.sql(
        "INSERT INTO queue.admission (event_id, epoch, lane, join_seq, call, state, called_at) "
        "SELECT :event_id, 1, 0, n, 1, 'called', now() - interval '1 hour' FROM generate_series(1000, 51000) AS n",
        event_id=EVENT,
    )
    async with LineRepository.reading(queue.db, EVENT, 1) as repository:
        slots, since = await repository.count_slots(reconcile.BEFORE_ALL)
        assert slots == 3
    async with queue.db.connect() as connection:
        if analyzed:
            await (await connection.execution_options(isolation_level="AUTOCOMMIT")).execute(text("VACUUM ANALYZE"))
        explained = text(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement('services.queue.line', name)}")
        values = {"event_id": EVENT, "epoch": 1, "since": since, "lane": -1, "join_seq": -1, "slots_max": 5000}
        [plan] = (await connection.execute(explained, values)).scalar_one()
    assert plan["Plan"]["Actual Rows"] == (1 if name == "count_slots" else 3)
    blocks = plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]
    assert blocks < (100 if analyzed else 1500), "50,000 ended calls are on hundreds of pages, and their places on more"


@pytest.mark.usefixtures("own_database")
async def test_purchases_write_each_place_once_and_no_call(queue: Queue):
    await queue.open_and_call(fans=4, max_active=4, claim_window_s=300)
    await queue.claim(*((n, f"fan-{n}") for n in range(1, 5)))
    for n in range(1, 4):
        await queue.confirm_order(holder=f"fan-{n}")
    before = await row_versions(queue.db, "queue")
    await queue.purchases().read()
    written = written_since(before, await row_versions(queue.db, "queue"))
    assert written == {"place": 3, "outbox_batch": 1, "log_offset": 1}
    assert await queue.status(*((n, f"fan-{n}") for n in range(1, 5))) == [*["completed"] * 3, "admitted"]
    ended = await queue.sql("SELECT count(*) FROM queue.place WHERE bought_at IS NOT NULL AND ended_at IS NOT NULL")
    assert ended[0][0] == 3
    assert list(await queue.sorted_set("active")) == ["0:4"]
    assert await queue.violations() == []


async def test_a_call_of_a_place_that_ended_is_not_missed(queue: Queue):
    await open_line(queue)
    assert await queue.leave((3, "fan-3")) == ["left"]
    async with queue.db.begin() as connection:
        saved = await LineRepository(connection, EVENT, 1).save_tick_events([TickEvent(1, "missed", 0, 3, 1, 0)])
    assert saved.missed == 0
    assert [row.state for row in await queue.sql("SELECT state FROM queue.admission WHERE join_seq = 3")] == ["called"]


async def test_a_place_that_ended_while_its_purchase_was_on_the_way_is_completed(queue: Queue, inventory, monkeypatch):
    await open_line(queue)
    revoke = queue.state.sessions.revoke

    async def leave_first(*args, **named):
        await queue.state.sessions.end_places(EVENT, 1, [(0, 1)], end_reason="left", unclaimed=False)
        return await revoke(*args, **named)

    monkeypatch.setattr(queue.state.sessions, "revoke", leave_first)
    await queue.confirm_order(holder="fan-1")
    await queue.purchases().read()
    assert await queue.status((1, "fan-1")) == ["completed"]
    events = await queue.sql(
        "SELECT body ->> 'type' AS type FROM queue.outbox_batch, jsonb_array_elements(events) AS body "
        "WHERE body ->> 'type' ~ 'left|completed'"
    )
    assert [event.type for event in events] == ["place.left"], "it ended once"


async def test_rows_are_compared_only_where_the_counts_differ(queue: Queue, monkeypatch: pytest.MonkeyPatch):
    await open_line(queue)
    run_once = queue.state.slot_reconciler.run_once
    await run_once()
    compared = AsyncMock(wraps=queue.state.slot_reconciler._compare)
    monkeypatch.setattr(queue.state.slot_reconciler, "_compare", compared)
    for _ in range(reconcile.COMPARE_EVERY - 1):
        await run_once()
    assert compared.await_count == 0
    await run_once()
    assert compared.await_count == 1, "once a minute places are compared all the same"
    await queue.redis.execute_command(*LOSSES["a session"])
    await run_once()
    assert compared.await_count == 2


async def test_two_losses_that_cancel_in_the_counts_are_found_within_a_minute(queue: Queue):
    await open_line(queue)
    await queue.state.slot_reconciler.run_once()
    for loss in ("a session", "nothing, but Redis has a slot of its own"):
        await queue.redis.execute_command(*LOSSES[loss])
    assert await queue.violations() != []
    for _ in range(2 * reconcile.COMPARE_EVERY):
        await queue.state.slot_reconciler.run_once()
    assert await queue.violations() == []
