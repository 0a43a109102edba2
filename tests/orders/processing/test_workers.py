"""Leases, workers and jobs: the rows decide which order is processed next, and a job only wakes a worker."""

import asyncio
from typing import cast

import pytest
from sqlalchemy import insert, text

from services.orders.order import leases as order_leases
from services.orders.order.updates import LeaseLost, LeaseRelease, OrderUpdate, Written, write
from services.orders.processing import job_queue, worker_pool
from services.orders.processing.job_queue import LISTENER, EnqueueFailed, JobQueue
from services.orders.processing.processor import OrderProcessor
from services.orders.processing.worker_pool import LoadOutside, WorkerPool
from services.orders.settings import Settings
from services.orders.tables import order
from services.orders.tuning import Tuning
from shared.concurrency.background import ACTIVITY
from shared.concurrency.leased_queue import SOON_S
from shared.errors.problems import Overloaded
from shared.postgres.settings import PostgresSettings
from shared.web import load_shedding
from shared.web.load_shedding import LoadShedder
from tests.support.wait import wait_until


async def due_leases(db, *, many=1, event_max=10, routine_max=10, lease_s=60):
    limits = {"many": many, "event_max": event_max, "routine_max": routine_max}
    return await order_leases.lease_due(db, **limits, lease_s=lease_s)


COPIES = """
INSERT INTO orders."order" (reference, status, event_id, reservation_id, owner_id, total_minor, currency, join_seq,
                            expires_at, due_at, routine)
SELECT 'A' || n, status, event_id, 'A' || n, owner_id, total_minor, currency, n, expires_at, due_at, routine
FROM orders."order", generate_series(1, 999) AS n WHERE reference = 'A0'
"""


async def lease_due(db, **limits):
    """The references leased."""
    return sorted(lease.reference for lease in await due_leases(db, **limits))


async def add(db, reference, *, event_id="a", join_seq=0, due="now()", status="pending", routine=False):
    async with db.begin() as connection:
        await connection.execute(
            insert(order).values(
                reference=reference, status=status, event_id=event_id, reservation_id=reference, owner_id="p",
                total_minor=1, currency="EUR", join_seq=join_seq, expires_at=text("now()"), due_at=text(due),
                routine=routine,
            )
        )  # fmt: skip


@pytest.fixture
def db(postgres):
    """Each statement commits by itself."""
    return postgres.execution_options(isolation_level="AUTOCOMMIT")


@pytest.fixture
def jobs(postgres_url):
    return JobQueue(PostgresSettings(postgres_url=postgres_url), accept_s=1.0)


async def test_events_are_leased_in_rotation_and_by_join_seq(postgres, db):
    for number in (3, 1, 2):
        await add(postgres, f"A{number}", event_id="a", join_seq=number, due="now() - interval '1 hour'")
    await add(postgres, "B9", event_id="b", join_seq=9)
    await add(postgres, "later", event_id="b", join_seq=1, due="now() + interval '1 hour'")
    assert await lease_due(db, many=2) == ["A1", "B9"]
    assert await lease_due(db, many=10) == ["A2", "A3"]
    assert await lease_due(db, many=10) == []


async def test_the_orders_of_one_event_leave_workers_for_others(postgres, db):
    for number in range(5):
        await add(postgres, f"A{number}", join_seq=number)
    assert len(await lease_due(db, many=10, event_max=2)) == 2
    assert await lease_due(db, many=10, event_max=2) == []


async def test_a_thousand_orders_that_nobody_waits_for_are_behind_one_that_somebody_does(postgres, db):
    """More than are looked at for their number in line, all due for longer and with lower numbers."""
    await add(postgres, "A0", due="now() - interval '1 hour'", status="confirmed", routine=True)
    async with postgres.begin() as connection:
        await connection.execute(text(COPIES))
    await add(postgres, "next", join_seq=2000)
    waiting, oldest_s = await order_leases.count_due(db)
    assert (waiting, oldest_s < 60) == (1, True)
    assert await lease_due(db) == ["next"]
    assert await order_leases.count_due(db) == (0, 0.0)


async def test_few_orders_that_nobody_waits_for_are_leased_at_a_time(postgres, db):
    for number in range(5):
        await add(postgres, f"A{number}", join_seq=number, status="confirmed", routine=True)
    await add(postgres, "next", join_seq=9)
    assert await lease_due(db, many=10, routine_max=2) == ["A0", "A1", "next"]
    assert await lease_due(db, many=10, routine_max=2) == []


async def test_an_order_is_leased_by_one_worker_only(postgres, db):
    for number in range(40):
        await add(postgres, f"A{number}", join_seq=number)
    leased: list[str] = []

    async def worker():
        while references := await lease_due(db, many=3, event_max=100):
            leased.extend(references)

    await asyncio.gather(*(worker() for _ in range(4)))
    leased += await lease_due(db, many=100, event_max=100)
    assert len(leased) == len(set(leased)) == 40
    assert await order_leases.lease_one(db, "A1", lease_s=60) is None


async def test_a_lease_is_extended_until_it_is_lost_to_another_worker(postgres, db):
    await add(postgres, "A1")
    [kept] = await due_leases(db, event_max=1, lease_s=0)
    await order_leases.extend_lease(db, [kept], lease_s=60)
    assert await lease_due(db, event_max=1) == []
    await add(postgres, "A2")
    [lost] = await due_leases(db, event_max=9, lease_s=0)
    assert await lease_due(db, event_max=9, lease_s=0)
    await order_leases.extend_lease(db, [lost], lease_s=60)
    assert await order_leases.lease_one(db, "A2", lease_s=60)


async def test_an_order_marked_due_while_leased_is_due_at_its_release(postgres, db):
    await add(postgres, "A1")
    [lease] = await due_leases(db)
    row = (await order_leases.read_many(db, ["A1"]))["A1"]
    async with postgres.begin() as connection:
        await order_leases.mark_due(connection, "A1")
    release = LeaseRelease(due_in_s=3600, routine=True)
    [written] = await write(db, [OrderUpdate(lease, row, bumps_version=False, release=release)])
    assert isinstance(written, Written)
    waiting, _ = await order_leases.count_due(db)
    assert waiting == 1, "who woke it waits for it"
    assert await order_leases.lease_one(db, "A1", lease_s=60)


@pytest.mark.parametrize(("answers", "processed"), [(True, 3), (False, 1)])
async def test_a_worker_pauses_after_a_provider_did_not_answer(postgres, db, monkeypatch, answers, processed):
    """One worker has three orders: it continues at once, or pauses first, here for an hour."""
    monkeypatch.setattr(worker_pool, "PROVIDER_AWAY_PAUSE_S", 3600)
    for number in range(3):
        await add(postgres, f"A{number}", join_seq=number)
    references = []

    class Processor:
        async def process(self, lease):
            references.append(lease.reference)
            return answers

    work = asyncio.create_task(
        WorkerPool(
            db, cast("OrderProcessor", Processor()), Settings(workers=1), LoadShedder(3), Tuning(sweep_s=0.05)
        ).queue.run()
    )
    await wait_until(lambda: len(references) == processed)
    await asyncio.wait([work], timeout=0.3)
    assert references == [f"A{number}" for number in range(processed)]
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


async def test_an_order_whose_job_was_lost_is_found_by_the_sweep(shop, monkeypatch):
    async def lose(connection, reference):
        return None

    monkeypatch.setattr(shop.state.job_queue, "enqueue", lose)
    await shop.wait_until_settled(await shop.order(), "confirmed")


async def test_a_job_wakes_a_worker_long_before_the_sweep(processes):
    shop = await processes.open(sweep_s=10)
    await wait_until(lambda: _listening(shop))
    await shop.wait_until_settled(await shop.order(), "confirmed", timeout_s=5)


async def test_a_job_is_enqueued_in_a_transaction_only_and_rolled_back_with_it(postgres, jobs):
    """It is enqueued on the driver's own connection, inside SQLAlchemy's transaction."""
    async with postgres.connect() as connection:
        with pytest.raises(AssertionError, match="survive its rollback"):
            await jobs.enqueue(connection, "A1")
        await connection.execute(text("SELECT 1"))
        await jobs.enqueue(connection, "A1")
        assert await _jobs(connection) == 1
        await connection.rollback()
        assert await _jobs(connection) == 0


@pytest.mark.usefixtures("own_database")
async def test_a_missing_job_queue_raises_an_error(postgres, jobs):
    async with postgres.connect() as connection:
        await connection.execute(text("ALTER TABLE orders.pgqueuer RENAME TO missing"))
        with pytest.raises(EnqueueFailed):
            await jobs.enqueue(connection, "A1")


async def test_a_failing_job_is_retried_and_then_kept_as_failed(postgres, jobs, monkeypatch):
    """pgqueuer's default is to try once and to delete it."""
    for name, value in (("ATTEMPTS_MAX", 2), ("RETRY_FIRST_S", 0.01), ("DEQUEUE_TIMEOUT_S", 0.1)):
        monkeypatch.setattr(job_queue, name, value)
    tries = []

    def fail():
        tries.append(1)
        raise RuntimeError("a broken worker")

    listening = asyncio.create_task(jobs.listen(fail))
    async with postgres.begin() as connection:
        await connection.execute(text("SELECT 1"))
        await jobs.enqueue(connection, "A1")

    async def failed():
        async with postgres.connect() as connection:
            return await connection.scalar(text("SELECT count(*) FROM orders.pgqueuer WHERE status = 'failed'"))

    await wait_until(failed)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    assert len(tries) > 1


async def test_money_entries_are_never_changed(shop):
    await shop.wait_until_settled(await shop.order(), "confirmed")
    for change in ("DELETE FROM orders.money_entry", "UPDATE orders.money_entry SET amount_minor = 1"):
        with pytest.raises(Exception, match="append-only"):
            await shop.run(change)


async def _jobs(connection):
    return await connection.scalar(text("SELECT count(*) FROM orders.pgqueuer"))


async def _listening(shop):
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = :name"
    return await shop.scalar(query, name=LISTENER)


async def test_a_call_that_outlasts_the_lease_keeps_it(processes):
    """The provider takes longer than a lease lasts. Without extension a second worker would charge, too."""
    calls = []

    async def hang(name, reference):
        if name == "before the provider":
            calls.append(reference)
            await asyncio.Event().wait()

    shop = await processes.open(lease_s=0.5, failpoint=hang)
    await shop.order()
    await wait_until(lambda: calls)
    begun = asyncio.get_running_loop().time()
    await wait_until(lambda: len(calls) > 1 or asyncio.get_running_loop().time() - begun > 1.5)
    assert len(calls) == 1


async def test_an_order_in_work_is_load_unless_a_provider_has_it(postgres, db, monkeypatch):
    monkeypatch.setattr(load_shedding, "LEAST_MAX", 1)
    monkeypatch.setattr(load_shedding, "CROWD_MAX", 1)
    load, calls, working, go_on = LoadShedder(3), asyncio.Event(), asyncio.Event(), asyncio.Event()

    class Provider:
        async def request(self, *_, **__):
            await calls.wait()

    class Processor:
        async def process(self, lease):
            working.set()
            await LoadOutside(Provider(), load).request("POST", "/", headers={}, timeout_s=1)
            await go_on.wait()
            return True

    pool = WorkerPool(db, cast("OrderProcessor", Processor()), Settings(), load)
    await add(postgres, "A1", join_seq=1)
    await pool.queue.run_once()
    await working.wait()
    load.begin()
    load.end()
    calls.set()
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        load.begin()
    go_on.set()
    await wait_until(lambda: not pool.queue.rows)
    load.begin()


async def test_a_lease_says_whether_its_order_was_pending(postgres, db):
    """Only these are work that a newcomer left."""
    await add(postgres, "A1", status="confirmed")
    await add(postgres, "A2")
    leased = await due_leases(db, many=2)
    assert {lease.reference: lease.is_pending for lease in leased} == {"A1": False, "A2": True}


async def test_an_order_that_finds_no_free_worker_is_load(postgres, db, monkeypatch):
    monkeypatch.setattr(load_shedding, "LEAST_MAX", 3)
    monkeypatch.setattr(load_shedding, "CROWD_MAX", 3)
    load, go_on = LoadShedder(3), asyncio.Event()

    class Processor:
        async def process(self, lease):
            await go_on.wait()
            return True

    pool = WorkerPool(db, cast("OrderProcessor", Processor()), Settings(workers=1), load)
    for number in range(3):
        await add(postgres, f"A{number}", join_seq=number)
    await pool.queue.run_once()
    await wait_until(lambda: load.in_flight == 1)
    with pytest.raises(Overloaded):
        load.check()
    go_on.set()
    for _ in range(3):
        await wait_until(lambda: not pool.queue.rows)
        await pool.queue.run_once()
    load.check()


@pytest.mark.parametrize(("due_in_s", "silent"), [(SOON_S + 60, True), (SOON_S - 1, False), (-1, False)])
async def test_workers_stay_awake_only_before_an_order_is_due(postgres, db, silence, due_in_s, silent):
    pool = WorkerPool(db, cast(OrderProcessor, None), Settings(), LoadShedder(3))
    await add(postgres, "A1", due=f"now() + interval '{due_in_s} seconds'")
    silence()
    leased = await pool._fetch(1)
    assert ACTIVITY.silent is silent
    assert [lease.reference for lease in leased] == (["A1"] if due_in_s < 0 else [])


async def test_an_update_of_an_older_status_writes_nothing(postgres, db):
    await add(postgres, "A1")
    [lease] = await due_leases(db)
    read_before = (await order_leases.read_many(db, ["A1"]))["A1"]
    async with postgres.begin() as connection:
        await connection.execute(text("UPDATE orders.\"order\" SET status = 'cancelled'"))
    [written] = await write(db, [OrderUpdate(lease, read_before).set_order(to="confirmed", confirmed=True)])
    assert isinstance(written, LeaseLost)
    assert (await order_leases.read_many(db, ["A1"]))["A1"].status == "cancelled"


async def test_an_update_of_a_worker_that_lost_its_lease_writes_nothing(postgres, db):
    await add(postgres, "A1")
    [lost] = await due_leases(db, lease_s=0)
    order = (await order_leases.read_many(db, ["A1"]))["A1"]
    assert await due_leases(db)
    [written] = await write(db, [OrderUpdate(lost, order).set_order(to="confirmed", confirmed=True)])
    assert isinstance(written, LeaseLost)
