"""The database refuses on its own: fences, tombstones, poisoned members, ordered locks."""

import asyncio
from typing import Any

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from services.inventory.catalogue.apply_event_file import apply_event_file
from services.inventory.catalogue.event_cache import EventCache
from services.inventory.catalogue.layout import Layout
from services.inventory.redis_stock.rebuild import EXCLUSIVE_LOCK, RAISE_EPOCH
from services.inventory.reservations import repository
from services.inventory.reservations.expiry import INSERT_TOMBSTONES
from services.inventory.reservations.repository import HoldInsert, write_holds
from shared.contracts.event_file import EventFile
from shared.postgres.fenced_transaction import fenced
from shared.postgres.migrations import drift
from tests.inventory.conftest import EVENT, event_file
from tests.support.wait import wait_until

UNTIL = 4_000_000_000_000


@pytest.fixture
async def layout(postgres: AsyncEngine) -> Layout:
    await apply_event_file(postgres, EventFile.model_validate(event_file()))
    catalogue = EventCache(postgres)
    await catalogue.refresh()
    return catalogue.layout(EVENT)


def take(layout: Layout, reservation_id: str, *seats: str, ga: int = 0, email: str | None = None) -> HoldInsert:
    selection = layout.select(list(seats), {"GA1": ga} if ga else {})
    return HoldInsert(reservation_id, f"fan-{reservation_id}", selection, "EUR", UNTIL, "a.b", email=email)


async def seats_of(postgres: AsyncEngine, status: str) -> int:
    async with postgres.connect() as connection:
        query = text("SELECT count(*) FROM inventory.seat WHERE status = :status")
        return int((await connection.execute(query, {"status": status})).scalar_one())


async def remaining(postgres: AsyncEngine, section_id: str) -> int:
    async with postgres.connect() as connection:
        query = text("SELECT seats_remaining FROM inventory.section WHERE section_id = :s")
        return int((await connection.execute(query, {"s": section_id})).scalar_one())


async def test_migrations_and_tables_agree(postgres_url: str) -> None:
    await drift(postgres_url, "inventory")


async def test_a_batch_is_written_whole(postgres: AsyncEngine, layout: Layout) -> None:
    takes = [take(layout, "r1", "A-1-1", ga=2), take(layout, "r2", "B-1-1"), take(layout, "r3", ga=3)]
    assert await write_holds(postgres, EVENT, layout.redis_epoch, takes) == ["written"] * 3
    assert (await remaining(postgres, "A"), await remaining(postgres, "GA1")) == (14, 15)
    assert await seats_of(postgres, "held") == 2


async def test_one_refused_member_does_not_fail_the_others(postgres: AsyncEngine, layout: Layout) -> None:
    await write_holds(postgres, EVENT, layout.redis_epoch, [take(layout, "r0", "A-1-1")])
    takes = [take(layout, "r1", "A-1-2"), take(layout, "r2", "A-1-1", "A-1-3"), take(layout, "r3", ga=21)]
    assert await write_holds(postgres, EVENT, layout.redis_epoch, takes) == ["written", "refused", "refused"]
    assert (await remaining(postgres, "A"), await remaining(postgres, "GA1")) == (13, 20)


@pytest.mark.parametrize("guarded", [True, False])
async def test_one_poisoned_member_does_not_fail_the_others(
    postgres: AsyncEngine, layout: Layout, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """Without savepoints the poison takes the one behind it along, and the one before was promised for nothing."""
    if not guarded:
        monkeypatch.setattr(repository, "_write_one", _without_a_savepoint)
    takes = [take(layout, "r1", "A-1-1"), take(layout, "r2", "A-1-2", email="nul\0"), take(layout, "r3", ga=1)]
    first, poisoned, third = await write_holds(postgres, EVENT, layout.redis_epoch, takes)
    assert isinstance(poisoned, asyncpg.PostgresError)
    assert ((first, third) == ("written", "written")) == guarded
    left = await remaining(postgres, "A"), await remaining(postgres, "GA1")
    assert left == ((14, 19) if guarded else (15, 20))


async def _without_a_savepoint(driver: Any, event_id: str, epoch: int, member: HoldInsert) -> repository.WriteOutcome:
    try:
        await repository.insert_holds(driver, event_id, epoch, [member])
    except asyncpg.PostgresError as broken:
        return broken
    return "written"


async def test_the_same_id_at_the_same_moment_is_written_once(postgres: AsyncEngine, layout: Layout) -> None:
    both = await asyncio.gather(
        *(write_holds(postgres, EVENT, layout.redis_epoch, [take(layout, "r1", "A-1-1", ga=1)]) for _ in range(4))
    )
    assert sorted(outcome for (outcome,) in both) == ["exists", "exists", "exists", "written"]  # type: ignore[type-var]
    assert (await remaining(postgres, "A"), await remaining(postgres, "GA1")) == (14, 19)


async def test_a_tombstone_stops_the_late_write_of_a_sleeping_process(postgres: AsyncEngine, layout: Layout) -> None:
    async with postgres.begin() as connection:
        await connection.execute(INSERT_TOMBSTONES, {"event_id": EVENT, "ids": ["r1"], "now_ms": 1})
    assert await write_holds(postgres, EVENT, layout.redis_epoch, [take(layout, "r1", "A-1-1")]) == ["exists"]
    assert await remaining(postgres, "A") == 15


async def test_a_batch_gated_before_a_rebuild_is_refused(postgres: AsyncEngine, layout: Layout) -> None:
    """The batch waits for the rebuild's lock, and then sees its epoch: read in a statement after the lock."""
    late: asyncio.Task[list[repository.WriteOutcome]]
    async with postgres.begin() as rebuild:
        await rebuild.execute(EXCLUSIVE_LOCK, {"event_id": EVENT})
        late = asyncio.create_task(write_holds(postgres, EVENT, layout.redis_epoch, [take(layout, "r1", "A-1-1")]))
        await _are_waiting(postgres, 1)
        await rebuild.execute(RAISE_EPOCH, {"event_id": EVENT, "redis_epoch": 0, "expected": layout.redis_epoch})
    assert await late == ["stale"]
    assert await remaining(postgres, "A") == 15


async def test_one_statement_for_lock_and_epoch_would_let_it_through(
    postgres: AsyncEngine, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard shown to matter: the same race with lock and epoch in one statement writes a hold nobody filled in."""
    lock = "pg_advisory_xact_lock_shared(hashtextextended('inventory stock ' || $1, 0))"
    epoch = "SELECT redis_epoch FROM inventory.event WHERE"
    assert epoch in repository.INSERT_HOLDS
    both = repository.INSERT_HOLDS.replace(epoch, f"SELECT redis_epoch FROM inventory.event, {lock} WHERE")
    monkeypatch.setattr(repository, "BEGIN_FENCED", "BEGIN")
    monkeypatch.setattr(repository, "INSERT_HOLDS", both)
    async with postgres.begin() as rebuild:
        await rebuild.execute(EXCLUSIVE_LOCK, {"event_id": EVENT})
        late = asyncio.create_task(write_holds(postgres, EVENT, layout.redis_epoch, [take(layout, "r1", "A-1-1")]))
        await _are_waiting(postgres, 1)
        await rebuild.execute(RAISE_EPOCH, {"event_id": EVENT, "redis_epoch": 0, "expected": layout.redis_epoch})
    assert await late == ["written"]


@pytest.mark.parametrize("guarded", [True, False])
async def test_repeatable_read_would_let_it_through(
    postgres: AsyncEngine, postgres_url: str, layout: Layout, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """Its one snapshot is older than the lock it waited for. Sessions may come to us like that; our transactions say
    what they need.
    """
    assert repository.COMMITTED in repository.BEGIN_FENCED
    if not guarded:
        monkeypatch.setattr(repository, "BEGIN_FENCED", repository.BEGIN_FENCED.replace(repository.COMMITTED, ""))
    settings = {"server_settings": {"default_transaction_isolation": "repeatable read"}}
    sleepy = create_async_engine(postgres_url, connect_args=settings)
    async with postgres.begin() as rebuild:
        await rebuild.execute(EXCLUSIVE_LOCK, {"event_id": EVENT})
        late = asyncio.create_task(write_holds(sleepy, EVENT, layout.redis_epoch, [take(layout, "r1", "A-1-1")]))
        await _are_waiting(postgres, 1)
        await rebuild.execute(RAISE_EPOCH, {"event_id": EVENT, "redis_epoch": 0, "expected": layout.redis_epoch})
    assert await late == (["stale"] if guarded else ["written"])
    await sleepy.dispose()


@pytest.mark.parametrize("ordered", [True, False])
async def test_batches_in_opposite_order_wait_instead_of_killing_each_other(
    postgres: AsyncEngine, layout: Layout, ordered: bool
) -> None:
    """Both want seats 1, 2 and 3, named in opposite order, while somebody holds the lock on 3. Without the ordered lock
    one holds 1, the other 2, and each waits for the other: the database kills one.
    """
    one, two, three = layout.select(["A-1-1", "A-1-2", "A-1-3"], {}).seats
    async with postgres.begin() as somebody:
        lock = "SELECT 1 FROM inventory.seat WHERE section_id = 'A' AND position = :position FOR UPDATE"
        await somebody.execute(text(lock), {"position": three[1]})
        both = asyncio.gather(
            _take_seats(postgres, [one, three, two], "r1", ordered=ordered),
            _take_seats(postgres, [two, three, one], "r2", ordered=ordered),
        )
        await _are_waiting(postgres, 2)
    assert sorted(await both) == ([0, 3] if ordered else [-1, 3])


async def _take_seats(
    postgres: AsyncEngine, seats: list[tuple[str, int, str, int]], reservation_id: str, *, ordered: bool
) -> int:
    """Seats taken by the real statement or by one without its order; -1 for a deadlock."""
    order = "    ORDER BY s.section_id, s.position\n    FOR UPDATE"
    assert order in repository.INSERT_HOLDS
    statement = repository.INSERT_HOLDS if ordered else repository.INSERT_HOLDS.replace(order, "    FOR UPDATE")
    n = len(seats)
    nothing: list[list[object]] = [[]] * 17
    columns = [*nothing, [s[0] for s in seats], [s[1] for s in seats], [reservation_id] * n, [1] * n]
    off = "".join(f"SET LOCAL enable_{plan} = off;" for plan in ("hashjoin", "mergejoin", "seqscan", "bitmapscan"))
    try:
        async with fenced(postgres, f"BEGIN; SET LOCAL deadlock_timeout = '50ms'; {off}") as driver:
            row = await driver.fetchrow(statement, EVENT, "EUR", *columns, "{}")
    except asyncpg.DeadlockDetectedError:
        return -1
    return int(row["seats"])


async def _are_waiting(postgres: AsyncEngine, count: int) -> None:
    query = text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )

    async def waiting() -> bool:
        async with postgres.connect() as connection:
            return int((await connection.execute(query)).scalar_one()) >= count

    await wait_until(waiting)


async def test_the_loser_of_a_deadlock_is_written_all_the_same(postgres: AsyncEngine, layout: Layout) -> None:
    """Somebody locks the sections in the other order; the hold is rolled back by the server and begins again. It looks
    for a deadlock once a wait, after a second: by then the other must wait too.
    """
    lock = text("SELECT 1 FROM inventory.section WHERE section_id = :s FOR UPDATE")
    async with postgres.begin() as somebody:
        await somebody.execute(text("SET LOCAL deadlock_timeout = '10s'"))
        await somebody.execute(lock, {"s": "GA1"})
        writing = asyncio.create_task(
            write_holds(postgres, EVENT, layout.redis_epoch, [take(layout, "r1", "A-1-1", ga=1)])
        )
        await _are_waiting(postgres, 1)
        await somebody.execute(lock, {"s": "A"})
    assert await writing == ["written"]
