"""Slots are held against the ledger: a purchase ends its place whatever was away, and what was lost is made good."""

import asyncio

import pytest
from sqlalchemy import text

from services.queue import reconcile as reconciling_room
from services.queue.line.purchases import Purchases
from services.queue.rooms.invariants import audit
from shared.contracts.events import Event
from shared.messaging.redis_streams import RedisStreams, log_stream
from shared.redis.client import connect
from tests.queue.admin.test_app import admin, app, place, put, queue_client  # noqa: F401 - fixtures
from tests.queue.conftest import EVENT, Inventory, Queue
from tests.support.wait import wait_until

KEY = f"queue:{{{EVENT}}}:1"
NOWHERE = "redis://127.0.0.1:1/0"
LOST = {
    "a session": ("ZREM", f"{KEY}:active", "0:1"),
    "a call": ("ZREM", f"{KEY}:called", "0:3"),
    "nothing, but a slot is known here alone": ("ZADD", f"{KEY}:called", 10**15, "0:5"),
}


async def busy(queue: Queue, **room) -> None:
    """1 and 2 have passes, 3 is called, 4 to 8 wait."""
    await queue.open(max_active=3, claim_window_s=300, **room)
    await queue.crowd(8)
    await queue.turn()
    await queue.claim((1, "fan-1"), (2, "fan-2"))


async def clean(queue: Queue) -> bool:
    room = await queue.running.rooms.read(EVENT)
    lines = await audit(queue.db, queue.redis, room, clock_offset_ms=queue.running.line.clock_offset_ms)
    return all(line["holds"] for line in lines)


async def bought(queue: Queue, holder: str) -> None:
    """The order is confirmed, and more than a moment passes."""
    event = Event(type="order.confirmed", event_id=EVENT, aggregate="order/x", after={"holder": holder})
    await queue.redis.xadd(log_stream(EVENT), {"event": event.model_dump_json()})
    log = RedisStreams(queue.redis, length_max=1000)
    await Purchases(queue.db, log, queue.running.sessions).read()
    await queue.sql("UPDATE queue.place SET bought_at = bought_at - interval '1 minute' WHERE ended_at IS NULL")


@pytest.mark.parametrize("away", ["inventory", "gates", "engine"])
async def test_a_purchase_whose_end_did_not_get_through_is_ended_by_the_next_turn(queue: Queue, inventory, away: str):
    await busy(queue)
    here, nowhere = queue.running.line.redis, connect(NOWHERE, timeout_s=0.2)
    inventory.away = away == "inventory"
    if away == "gates":
        queue.running.sessions._revocations._redis = nowhere
    elif away == "engine":
        queue.running.line.redis = nowhere
    await bought(queue, "fan-1")
    queue.running.line.redis = queue.running.sessions._revocations._redis = here
    queue.running.line.silent.clear()
    inventory.away = False
    assert "0:1" in await queue.part("active")
    await queue.running.reconciling.turn()
    assert await queue.status((1, "fan-1")) == ["completed"]
    assert list(await queue.part("active")) == ["0:2"]
    await queue.turn()
    assert 4 in await queue.called()
    assert await clean(queue)


async def test_who_bought_and_holds_something_else_keeps_the_place_until_that_is_over(queue: Queue, inventory):
    await busy(queue)
    inventory.stands["fan-1"] = 10**15
    await bought(queue, "fan-1")
    await queue.running.reconciling.turn()
    assert await queue.status((1, "fan-1")) == ["admitted"]
    inventory.stands.clear()
    await queue.running.reconciling.turn()
    assert await queue.status((1, "fan-1")) == ["completed"]


async def test_an_end_that_a_replica_behind_has_forgotten_is_made_good_within_five_seconds(
    app, admin, queue_client, redis, postgres  # noqa: F811
):  # fmt: skip
    """What a promoted replica that is behind looks like: the ledger has ended the place, the engine has its session."""
    await put(admin, max_active=1)
    await admin.post(f"/admin/queue/events/{EVENT}/room/open")
    queue = Queue(app.state.queue, postgres, redis, Inventory())
    await queue.join("ann", "ben")
    await wait_until(lambda: _claimed(queue))
    session = await queue.part("active")
    await queue.running.sessions.close(EVENT, 1, [(0, 1)], how="completed", unclaimed=False)
    await queue.running.gatekeeper.drain()
    await redis.zadd(f"{KEY}:active", session)
    await redis.zrem(f"{KEY}:called", "0:2")
    await wait_until(lambda: _called(queue, 2), timeout_s=5)
    assert list(await queue.part("active")) == []


async def _claimed(queue: Queue) -> bool:
    return (await queue.claim((1, "ann")))[0].word == "admitted"


async def _called(queue: Queue, n: int) -> bool:
    return n in await queue.called()


@pytest.mark.parametrize("lost", LOST)
async def test_a_slot_that_one_side_lost_fills_the_line_anew(queue: Queue, lost: str):
    await busy(queue)
    slots = await queue.part("active") | await queue.part("called")
    await queue.redis.execute_command(*LOST[lost])
    assert not await clean(queue)
    await queue.running.reconciling.turn()
    await queue.running.reconciling.turn()
    assert await queue.part("active") | await queue.part("called") == slots
    assert await clean(queue)
    fill = (await queue.room_hash())["fill"]
    for _ in range(3):
        await queue.running.reconciling.turn()
    assert (await queue.room_hash())["fill"] == fill, "nothing differs any more"


async def test_a_call_on_its_way_to_the_ledger_is_no_difference(queue: Queue):
    await busy(queue)
    room = await queue.running.rooms.change(EVENT, {"max_active": 5}, actor="test", action="change", reason=None)
    await queue.running.line.configure(room)
    queue.later(1)
    await queue.running.line.tick(room, deaf=False, stock=await queue.running.gatekeeper.board.of(EVENT))
    assert await queue.part("unwritten")
    fill = (await queue.room_hash())["fill"]
    for _ in range(3):
        await queue.running.reconciling.turn()
    assert (await queue.room_hash())["fill"] == fill


async def test_two_processes_that_find_the_same_loss_fill_once(queue: Queue, another):
    await busy(queue)
    other = another()
    await other.running.rooms.refresh()
    fill = int((await queue.room_hash())["fill"])
    await queue.redis.execute_command(*LOST["a session"])
    for _ in range(2):
        await asyncio.gather(*(one.running.reconciling.turn() for one in (queue, other)))
    assert int((await queue.room_hash())["fill"]) == fill + 1


async def test_a_turn_is_bounded_and_the_next_goes_on_behind_it(queue: Queue, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reconciling_room, "SLOTS_MAX", 2)
    await queue.open(max_active=9, claim_window_s=300)
    await queue.crowd(9)
    await queue.turn()
    await queue.claim(*((n, f"fan-{n}") for n in range(1, 10)))
    await queue.sql("UPDATE queue.place SET bought_at = now() - interval '1 minute' WHERE join_seq IN (3, 9)")
    for _ in range(5):
        await queue.running.reconciling.turn()
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
        explained = text(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {reconciling_room_statement()}")
        wanted = {"event_id": EVENT, "epoch": 1, "lane": -1, "join_seq": -1, "slots_max": 5000}
        [plan] = (await connection.execute(explained, wanted)).scalar_one()
    assert plan["Plan"]["Actual Rows"] == 3
    assert plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"] < 20


def reconciling_room_statement() -> str:
    from services.queue.line.repository import OPEN_SLOTS

    return str(OPEN_SLOTS)
