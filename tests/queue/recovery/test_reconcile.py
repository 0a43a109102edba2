"""Slots are held against the database: a purchase ends its place whatever was away, and what was lost is made good."""

import asyncio

import pytest
from sqlalchemy import text

from services.queue import reconcile
from services.queue.line.purchases import Purchases
from services.queue.rooms.invariants import check_invariants
from shared.contracts.events import Event
from shared.messaging.redis_streams import RedisStreams, log_stream
from shared.redis.client import connect
from tests.queue.admin.test_app import admin, app, place, put, queue_client  # noqa: F401 - fixtures
from tests.queue.conftest import EVENT, Inventory, Queue
from tests.support.wait import wait_until

KEY = f"queue:{{{EVENT}}}:1"
UNREACHABLE_URL = "redis://127.0.0.1:1/0"
LOST = {
    "a session": ("ZREM", f"{KEY}:active", "0:1"),
    "a call": ("ZREM", f"{KEY}:called", "0:3"),
    "nothing, but a slot is known here alone": ("ZADD", f"{KEY}:called", 10**15, "0:5"),
}


async def busy(queue: Queue, **room) -> None:
    """1 and 2 have passes, 3 is called, 4 to 8 wait."""
    await queue.open(max_active=3, claim_window_s=300, **room)
    await queue.crowd(8)
    await queue.tick()
    await queue.claim((1, "fan-1"), (2, "fan-2"))


async def clean(queue: Queue) -> bool:
    room = await queue.state.rooms.read(EVENT)
    lines = await check_invariants(queue.db, queue.redis, room, clock_offset_ms=queue.state.line.clock_offset_ms)
    return all(line.holds for line in lines)


async def bought(queue: Queue, holder: str) -> None:
    """The order is confirmed, and more than a moment passes."""
    event = Event(type="order.confirmed", event_id=EVENT, aggregate="order/x", after={"holder": holder})
    await queue.redis.xadd(log_stream(EVENT), {"event": event.model_dump_json()})
    log = RedisStreams(queue.redis, length_max=1000)
    await Purchases(queue.db, log, queue.state.sessions).read()
    await queue.sql("UPDATE queue.place SET bought_at = bought_at - interval '1 minute' WHERE ended_at IS NULL")


@pytest.mark.parametrize("away", ["inventory", "gateways", "redis"])
async def test_a_purchase_whose_end_did_not_get_through_is_ended_by_the_next_run(queue: Queue, inventory, away: str):
    await busy(queue)
    here, nowhere = queue.state.line.redis, connect(UNREACHABLE_URL, timeout_s=0.2)
    inventory.away = away == "inventory"
    if away == "gateways":
        queue.state.sessions._revocations._redis = nowhere
    elif away == "redis":
        queue.state.line.redis = nowhere
    await bought(queue, "fan-1")
    queue.state.line.redis = queue.state.sessions._revocations._redis = here
    queue.state.line.unresponsive.clear()
    inventory.away = False
    assert "0:1" in await queue.part("active")
    await queue.state.slot_reconciler.run_once()
    assert await queue.status((1, "fan-1")) == ["completed"]
    assert list(await queue.part("active")) == ["0:2"]
    await queue.tick()
    assert 4 in await queue.called()
    assert await clean(queue)


async def test_who_bought_and_holds_something_else_keeps_the_place_until_that_is_over(queue: Queue, inventory):
    await busy(queue)
    inventory.stands["fan-1"] = 10**15
    await bought(queue, "fan-1")
    await queue.state.slot_reconciler.run_once()
    assert await queue.status((1, "fan-1")) == ["admitted"]
    inventory.stands.clear()
    await queue.state.slot_reconciler.run_once()
    assert await queue.status((1, "fan-1")) == ["completed"]


async def test_an_end_that_a_replica_behind_has_forgotten_is_made_good_within_five_seconds(
    app, admin, queue_client, redis, postgres  # noqa: F811
):  # fmt: skip
    """What a promoted replica that is behind looks like: the database has ended the place, Redis has its session."""
    await put(admin, max_active=1)
    await admin.post(f"/admin/events/{EVENT}/room/open")
    queue = Queue(app.state.deps, postgres, redis, Inventory())
    await queue.join("ann", "ben")
    await wait_until(lambda: _claimed(queue))
    session = await queue.part("active")
    await queue.state.sessions.end_places(EVENT, 1, [(0, 1)], end_reason="completed", unclaimed=False)
    await queue.state.gatekeeper.drain()
    await redis.zadd(f"{KEY}:active", session)
    await redis.zrem(f"{KEY}:called", "0:2")
    await wait_until(lambda: _called(queue, 2), timeout_s=5)
    assert list(await queue.part("active")) == []


async def _claimed(queue: Queue) -> bool:
    return (await queue.claim((1, "ann")))[0].word == "admitted"


async def _called(queue: Queue, n: int) -> bool:
    return n in await queue.called()


@pytest.mark.parametrize("lost", LOST)
async def test_a_slot_that_one_side_lost_rebuilds_redis(queue: Queue, lost: str):
    await busy(queue)
    slots = await queue.part("active") | await queue.part("called")
    await queue.redis.execute_command(*LOST[lost])
    assert not await clean(queue)
    await queue.state.slot_reconciler.run_once()
    await queue.state.slot_reconciler.run_once()
    assert await queue.part("active") | await queue.part("called") == slots
    assert await clean(queue)
    generation = (await queue.room_hash())["generation"]
    for _ in range(3):
        await queue.state.slot_reconciler.run_once()
    assert (await queue.room_hash())["generation"] == generation, "nothing differs any more"


async def test_a_call_on_its_way_to_the_database_is_no_difference(queue: Queue):
    await busy(queue)
    room = await queue.state.rooms.change(EVENT, {"max_active": 5}, actor="test", action="change", reason=None)
    await queue.state.line.configure(room)
    queue.later(1)
    await queue.state.line.tick(room, heartbeat_gap=False, stock=await queue.state.gatekeeper.stock_cache.get(EVENT))
    assert await queue.part("unwritten")
    generation = (await queue.room_hash())["generation"]
    for _ in range(3):
        await queue.state.slot_reconciler.run_once()
    assert (await queue.room_hash())["generation"] == generation


async def test_two_processes_that_see_the_same_loss_rebuild_once(queue: Queue, another):
    await busy(queue)
    other = another()
    await other.state.rooms.refresh()
    generation = int((await queue.room_hash())["generation"])
    await queue.redis.execute_command(*LOST["a session"])
    for _ in range(2):
        await asyncio.gather(*(one.state.slot_reconciler.run_once() for one in (queue, other)))
    assert int((await queue.room_hash())["generation"]) == generation + 1


async def test_a_run_is_bounded_and_the_next_continues_after_it(queue: Queue, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reconcile, "SLOTS_MAX", 2)
    await queue.open(max_active=9, claim_window_s=300)
    await queue.crowd(9)
    await queue.tick()
    await queue.claim(*((n, f"fan-{n}") for n in range(1, 10)))
    await queue.sql("UPDATE queue.place SET bought_at = now() - interval '1 minute' WHERE join_seq IN (3, 9)")
    for _ in range(5):
        await queue.state.slot_reconciler.run_once()
    states = await queue.status((3, "fan-3"), (8, "fan-8"), (9, "fan-9"))
    assert states == ["completed", "admitted", "completed"]


@pytest.mark.parametrize("analyzed", [False, True])
async def test_looking_at_the_slots_reads_no_calls_that_are_over(queue: Queue, analyzed: bool):
    await busy(queue)
    await queue.sql(
        "INSERT INTO queue.admission (event_id, epoch, lane, join_seq, call, state) "
        "SELECT :event_id, 1, 0, n, 1, 'ended' FROM generate_series(1000, 51000) AS n",
        event_id=EVENT,
    )
    async with queue.db.connect() as connection:
        if analyzed:
            await (await connection.execution_options(isolation_level="AUTOCOMMIT")).execute(text("VACUUM ANALYZE"))
        explained = text(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {reconcile_statement()}")
        wanted = {"event_id": EVENT, "epoch": 1, "lane": -1, "join_seq": -1, "slots_max": 5000}
        [plan] = (await connection.execute(explained, wanted)).scalar_one()
    assert plan["Plan"]["Actual Rows"] == 3
    assert plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"] < 20


def reconcile_statement() -> str:
    from services.queue.line.repository import OPEN_SLOTS

    return str(OPEN_SLOTS)
