"""Writes of holds to the database: fences, tombstones, savepoints and ordered locks; consent to reminders, which is
stored with its hold; and the gauges of live holds.

The end of a session: its pass is revoked, unless a live hold keeps the session; and a reset, which revokes older
passes at once, while stock that is held can still be paid.
"""

import asyncio
from dataclasses import replace
from typing import Any

import asyncpg
import httpx
import pytest
from prometheus_client import REGISTRY
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from services.inventory.catalogue.apply_event_file import apply_event_file
from services.inventory.gauges import LiveHoldGauges
from services.inventory.layout.layout import EventCache, Layout
from services.inventory.layout.selection import SeatLine
from services.inventory.redis_keys import Keys
from services.inventory.redis_stock.rebuild import EXCLUSIVE_LOCK, RAISE_EPOCH
from services.inventory.reservations.expiry import INSERT_TOMBSTONES
from services.inventory.store import reservations
from services.inventory.store.reservations import HoldInsert, write_holds
from shared.contracts.event_file import EventFile
from shared.postgres.engine import fenced
from shared.postgres.migrations import drift
from shared.runtime.clock import now_s
from shared.security.tokens import Pass, development_keys, sign_pass
from tests.inventory.actions import end_sessions, record, replace_in_sql
from tests.inventory.conftest import EVENT, Inventory, event_file
from tests.support.running.suite import bearer, problem
from tests.support.wait import wait_until

UNTIL = 4_000_000_000_000


@pytest.fixture
async def layout(postgres: AsyncEngine) -> Layout:
    await apply_event_file(postgres, EventFile.model_validate(event_file()))
    catalogue = EventCache(postgres)
    await catalogue.refresh()
    return catalogue.layout(EVENT)


def hold_insert(layout: Layout, reservation_id: str, *seats: str, ga: int = 0, email: str | None = None) -> HoldInsert:
    selection = layout.select(list(seats), {("GA1", ""): ga} if ga else {})
    return HoldInsert(reservation_id, f"fan-{reservation_id}", selection, "EUR", UNTIL, "a.b", email=email)


async def write(postgres: AsyncEngine, layout: Layout, *holds: HoldInsert) -> list[reservations.WriteOutcome]:
    return await write_holds(postgres, EVENT, layout.redis_epoch, holds)


async def remaining(postgres: AsyncEngine) -> tuple[int, int]:
    """Places left of A and of GA1."""
    async with postgres.connect() as connection:
        rows = (await connection.execute(text("SELECT section_id, seats_remaining FROM inventory.section"))).all()
    left = {row.section_id: row.seats_remaining for row in rows}
    return left["A"], left["GA1"]


@pytest.mark.usefixtures("own_database")
async def test_migrations_and_tables_agree(postgres_url: str) -> None:
    await drift(postgres_url, "inventory")


async def test_a_batch_is_written_whole(postgres: AsyncEngine, layout: Layout) -> None:
    holds = (
        hold_insert(layout, "r1", "A-1-1", ga=2),
        hold_insert(layout, "r2", "B-1-1"),
        hold_insert(layout, "r3", ga=3),
    )
    assert await write(postgres, layout, *holds) == ["written"] * 3
    assert await remaining(postgres) == (14, 15)
    async with postgres.connect() as connection:
        held = await connection.scalar(text("SELECT count(*) FROM inventory.seat WHERE status = 'held'"))
    assert held == 2


async def test_one_refused_member_does_not_fail_the_others(postgres: AsyncEngine, layout: Layout) -> None:
    await write(postgres, layout, hold_insert(layout, "r0", "A-1-1"))
    taken, too_many = hold_insert(layout, "r2", "A-1-1", "A-1-3"), hold_insert(layout, "r3", ga=21)
    outcomes = await write(postgres, layout, hold_insert(layout, "r1", "A-1-2"), taken, too_many)
    assert outcomes == ["written", "refused", "refused"]
    assert await remaining(postgres) == (13, 20)


async def test_one_poisoned_member_does_not_fail_the_others(postgres: AsyncEngine, layout: Layout) -> None:
    """Without savepoints an invalid member also fails the members before and after it."""
    invalid = hold_insert(layout, "r2", "A-1-2", email="nul\0")
    holds = hold_insert(layout, "r1", "A-1-1"), invalid, hold_insert(layout, "r3", ga=1)
    first, poisoned, third = await write(postgres, layout, *holds)
    assert isinstance(poisoned, asyncpg.PostgresError)
    assert (first, third) == ("written", "written")
    assert await remaining(postgres) == (14, 19)


async def test_concurrent_writes_of_one_id_succeed_once(postgres: AsyncEngine, layout: Layout) -> None:
    writes = (write(postgres, layout, hold_insert(layout, "r1", "A-1-1", ga=1)) for _ in range(4))
    outcomes = [str(outcome) for (outcome,) in await asyncio.gather(*writes)]
    assert sorted(outcomes) == ["exists", "exists", "exists", "written"]
    assert await remaining(postgres) == (14, 19)


async def test_a_tombstone_stops_the_late_write_of_a_paused_process(postgres: AsyncEngine, layout: Layout) -> None:
    async with postgres.begin() as connection:
        await connection.execute(INSERT_TOMBSTONES, {"event_id": EVENT, "ids": ["r1"], "now_ms": 1})
    assert await write(postgres, layout, hold_insert(layout, "r1", "A-1-1")) == ["exists"]
    assert await remaining(postgres) == (15, 20)


@pytest.mark.parametrize("guard", ["all", "two statements", "isolation level"])
async def test_a_batch_of_the_epoch_before_a_rebuild_is_refused(
    postgres: AsyncEngine, postgres_url: str, layout: Layout, monkeypatch: pytest.MonkeyPatch, guard: str
) -> None:
    """The batch waits for the lock of the rebuild, and reads the new epoch in a later statement. With one statement for
    both, or a snapshot older than the lock (a session may have that default), the hold is written, but the rebuilt
    Redis does not have it.
    """
    if guard == "two statements":
        lock = "pg_advisory_xact_lock_shared(hashtextextended('inventory stock ' || $1, 0))"
        epoch = "SELECT redis_epoch FROM inventory.event"
        monkeypatch.setattr(reservations, "BEGIN_FENCED", "BEGIN")
        replace_in_sql(monkeypatch, reservations, "INSERT_HOLDS", f"{epoch} WHERE", f"{epoch}, {lock} WHERE")
    elif guard == "isolation level":
        replace_in_sql(monkeypatch, reservations, "BEGIN_FENCED", reservations.COMMITTED)
    settings = {"server_settings": {"default_transaction_isolation": "repeatable read"}}
    repeatable = create_async_engine(postgres_url, connect_args=settings)
    writer = postgres if guard == "two statements" else repeatable
    outcomes = await _write_during_rebuild(writer, postgres, layout)
    await repeatable.dispose()
    assert outcomes == (["stale"] if guard == "all" else ["written"])


async def _write_during_rebuild(
    writer: AsyncEngine, postgres: AsyncEngine, layout: Layout
) -> list[reservations.WriteOutcome]:
    """Writes a hold of the old epoch, which waits for the lock of a rebuild that raises the epoch."""
    async with postgres.begin() as rebuild:
        await rebuild.execute(EXCLUSIVE_LOCK, {"event_id": EVENT})
        late = asyncio.create_task(write(writer, layout, hold_insert(layout, "r1", "A-1-1")))
        await _are_waiting(postgres, 1)
        await rebuild.execute(RAISE_EPOCH, {"event_id": EVENT, "redis_epoch": 0, "expected": layout.redis_epoch})
    return await late


@pytest.mark.parametrize("ordered", [True, False])
async def test_batches_in_opposite_order_wait_instead_of_deadlocking(
    postgres: AsyncEngine, layout: Layout, ordered: bool
) -> None:
    """Both hold seats 1, 2 and 3, named in opposite order, while another transaction has locked seat 3. Without the
    ordered lock one has 1, the other 2, and each waits for the other: the database aborts one.
    """
    one, two, three = layout.select(["A-1-1", "A-1-2", "A-1-3"], {}).seats
    async with postgres.begin() as other:
        lock = "SELECT 1 FROM inventory.seat WHERE section_id = 'A' AND position = :position FOR UPDATE"
        await other.execute(text(lock), {"position": three[1]})
        both = [
            asyncio.create_task(_hold_seats(postgres, [one, three, two], "r1", ordered=ordered)),
            asyncio.create_task(_hold_seats(postgres, [two, three, one], "r2", ordered=ordered)),
        ]
        waiting = asyncio.create_task(_are_waiting(postgres, 2))
        await asyncio.wait([*both, waiting], return_when=asyncio.FIRST_COMPLETED)  # a deadlock may be over by then
        waiting.cancel()
    assert sorted(await asyncio.gather(*both)) == ([0, 3] if ordered else [-1, 3])


async def _hold_seats(postgres: AsyncEngine, seats: list[SeatLine], reservation_id: str, *, ordered: bool) -> int:
    """The number of seats held by the statement, with or without its order; -1 for a deadlock."""
    order = "    ORDER BY s.section_id, s.position\n    FOR UPDATE"
    assert order in reservations.INSERT_HOLDS
    statement = reservations.INSERT_HOLDS if ordered else reservations.INSERT_HOLDS.replace(order, "    FOR UPDATE")
    n, unused = len(seats), list[list[object]]([[]] * 18)
    columns = [*unused, [s[0] for s in seats], [s[1] for s in seats], [reservation_id] * n, [1] * n, [""] * n, [""] * n]
    plans = ("hashjoin", "mergejoin", "seqscan", "bitmapscan")
    disabled_plans = "".join(f"SET LOCAL enable_{plan} = off;" for plan in plans)
    try:
        async with fenced(postgres, f"BEGIN; SET LOCAL deadlock_timeout = '50ms'; {disabled_plans}") as driver:
            row = await driver.fetchrow(statement, EVENT, "EUR", *columns, "{}")
    except asyncpg.DeadlockDetectedError:
        return -1
    return int(row["seats"])


async def _are_waiting(postgres: AsyncEngine, count: int) -> None:
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"

    async def waiting() -> bool:
        async with postgres.connect() as connection:
            return int(await connection.scalar(text(query)) or 0) >= count

    await wait_until(waiting)


async def test_the_loser_of_a_deadlock_is_retried_and_written(postgres: AsyncEngine, layout: Layout) -> None:
    """Another transaction locks the sections in the opposite order: the server rolls the hold back, and it is tried
    again. The server looks for a deadlock once, a second after a wait begins, so the other must wait by then.
    """
    lock = text("SELECT 1 FROM inventory.section WHERE section_id = :s FOR UPDATE")
    async with postgres.begin() as other:
        await other.execute(text("SET LOCAL deadlock_timeout = '10s'"))
        await other.execute(lock, {"s": "GA1"})
        writing = asyncio.create_task(write(postgres, layout, hold_insert(layout, "r1", "A-1-1", ga=1)))
        await _are_waiting(postgres, 1)
        await other.execute(lock, {"s": "A"})
    assert await writing == ["written"]


async def poll(inventory: Inventory, *acknowledged: str) -> list[dict[str, Any]]:
    answer = await inventory.post_internal("/reminder-consents/poll", {"acknowledged": list(acknowledged)})
    return list(answer["consents"])


async def test_consent_is_kept_with_its_hold_until_orders_acknowledges_it(inventory: Inventory) -> None:
    body: dict[str, Any] = {"ga_section": "GA1", "ga_quantity": 1, "email": "ada@example.org"}
    reservation_id = await inventory.hold("consenting", **body, reminders=True)
    assert (await inventory.reserve("silent", **body)).status_code == 201
    for _ in range(2):
        (consent,) = await poll(inventory)
        assert (consent["reservation"]["reservation_id"], consent["email"]) == (reservation_id, "ada@example.org")
    assert await poll(inventory, reservation_id) == []
    assert await poll(inventory) == []


def pending(status: str = "pending_payment") -> float | None:
    return REGISTRY.get_sample_value("inventory_holds_pending", {"event_id": EVENT, "status": status})


async def test_live_holds_are_counted_by_status_until_they_end(inventory: Inventory) -> None:
    gauges = LiveHoldGauges(inventory.state.autocommit_db)
    first = await inventory.hold("ann", seats=["A-1-1"])
    second = await inventory.hold("bob", seats=["A-1-2"])
    await gauges.refresh()
    assert (pending(), pending("paying")) == (2, 0)
    assert await inventory.outcome("begin-payment", second, "A1") == "done"
    await gauges.refresh()
    assert (pending(), pending("paying")) == (1, 1)
    assert (REGISTRY.get_sample_value("inventory_oldest_hold_seconds", {"event_id": EVENT}) or 0) > 0
    assert (await inventory.fan_request("DELETE", first, "ann")).is_success
    assert await inventory.outcome("confirm", second, "A1") == "done"
    await gauges.refresh()
    assert (pending(), pending("paying")) == (0, 0)
    assert REGISTRY.get_sample_value("inventory_oldest_hold_seconds", {"event_id": EVENT}) == 0


async def test_a_pass_is_revoked_unless_its_holder_has_a_live_reservation(inventory: Inventory) -> None:
    held = await inventory.hold("holding", seats=["A-1-1"])
    until_ms = (await record(inventory, held))["reserved_until_ms"] + 5_000
    gone, until = await end_sessions(inventory, "idle", "holding")
    assert (gone["outcome"], until["outcome"], until["until_ms"]) == ("gone", "until", until_ms)
    assert problem(await inventory.reserve("idle", seats=["A-1-2"])) == (401, "bad-credential")
    assert (await inventory.reserve("holding", seats=["A-1-1"])).status_code == 201


async def test_leaving_releases_a_hold_but_not_one_in_payment(inventory: Inventory) -> None:
    await inventory.hold("leaver", seats=["A-1-1"])
    await inventory.step("begin-payment", await inventory.hold("payer", seats=["A-1-2"]), "order-1")
    ended = await end_sessions(inventory, "leaver", "payer", leaving=True)
    assert [session["outcome"] for session in ended] == ["gone", "until"]
    assert await inventory.counts("A") == (14, 1)


async def test_a_hold_and_the_end_of_its_session_never_both_succeed(inventory: Inventory) -> None:
    """Either the pass is revoked and nothing is held, or the hold is made and the session goes on."""
    for i in range(12):
        request = inventory.reserve(f"f{i}", ga_section="GA1", ga_quantity=1)
        answer, (ended,) = await asyncio.gather(request, end_sessions(inventory, f"f{i}"))
        assert (answer.status_code, ended["outcome"]) in {(201, "until"), (401, "gone")}


def pass_of_epoch(epoch: int, holder: str) -> str:
    now = int(now_s())
    admission = Pass(EVENT, holder, f"jti-{epoch}-{holder}", epoch, 0, 7, 6, now, now + 900)
    return sign_pass(development_keys("pass"), admission)


async def reserve(inventory: Inventory, epoch: int, holder: str = "stale", seat: str = "A-1-2") -> httpx.Response:
    return await inventory.reserve(token=pass_of_epoch(epoch, holder), seats=[seat])


async def raise_min_epoch(inventory: Inventory, epoch: int) -> int:
    return int((await inventory.post_internal("/passes/min-epoch", {"event_id": EVENT, "epoch": epoch}))["epoch"])


async def test_passes_below_the_minimum_epoch_hold_nothing(inventory: Inventory) -> None:
    held = (await reserve(inventory, 1, "quick", "A-1-1")).json()["reservation_id"]
    assert await raise_min_epoch(inventory, 2) == 2
    assert problem(await reserve(inventory, 1)) == (401, "bad-credential")
    old = bearer(pass_of_epoch(1, "late"))
    assert (await inventory.fans.get(f"/events/{EVENT}/sections/A/seats", headers=old)).status_code == 401
    assert (await reserve(inventory, 2, "new")).status_code == 201
    assert await raise_min_epoch(inventory, 1) == 2, "the minimum never falls"
    assert await inventory.outcome("begin-payment", held, "order-1") == "done"


async def test_redis_refuses_a_pass_that_a_process_with_an_old_catalogue_accepts(inventory: Inventory) -> None:
    """Another process raised the minimum, and this one has not read the catalogue since."""
    await inventory.state.redis_stock.set_min_pass_epoch(EVENT, 2)
    assert (await reserve(inventory, 1)).status_code == 401


@pytest.mark.usefixtures("loops")
async def test_the_minimum_epoch_survives_a_flushed_redis(inventory: Inventory) -> None:
    await raise_min_epoch(inventory, 2)
    await inventory.state.redis_stock.redis.flushall()
    await inventory.until_ready()
    assert await inventory.state.redis_stock.redis.hget(Keys.of(EVENT).meta, "min_pass_epoch") == b"2"
    catalogue = inventory.state.catalogue
    catalogue._layouts[EVENT] = replace(catalogue.layout(EVENT), min_pass_epoch=0)
    assert (await reserve(inventory, 1)).status_code == 401
