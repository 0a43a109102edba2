"""Jobs only wake workers: a lost job costs a second, a refused one nothing, and the rows decide which order is next."""

import asyncio
from typing import cast

import pytest
from sqlalchemy import insert, text

from services.orders.order import leases as order_leases
from services.orders.order.updates import LeaseRelease, OrderUpdate, Written, write
from services.orders.processing import job_queue, worker_pool
from services.orders.processing.job_queue import LISTENER, EnqueueFailed, JobQueue
from services.orders.processing.processor import OrderProcessor
from services.orders.processing.worker_pool import WorkerPool
from services.orders.settings import Settings
from services.orders.tables import order
from shared.postgres.settings import PostgresSettings
from tests.support.wait import wait_until


async def add(db, reference, *, event_id="a", join_seq=0, due="now()"):
    async with db.begin() as connection:
        await connection.execute(
            insert(order).values(
                reference=reference, status="pending", event_id=event_id, reservation_id=reference, owner_id="p",
                total_minor=1, currency="EUR", join_seq=join_seq, expires_at=text("now()"), due_at=text(due),
            )
        )  # fmt: skip


@pytest.fixture
def plain(postgres):
    """Each statement commits by itself."""
    return postgres.execution_options(isolation_level="AUTOCOMMIT")


async def test_events_take_turns_and_the_lowest_number_goes_first(postgres, plain):
    for number in (3, 1, 2):
        await add(postgres, f"A{number}", event_id="a", join_seq=number, due="now() - interval '1 hour'")
    await add(postgres, "B9", event_id="b", join_seq=9)
    await add(postgres, "later", event_id="b", join_seq=1, due="now() + interval '1 hour'")
    taken = [lease.reference for lease in await order_leases.lease_due(plain, many=2, event_max=10, lease_s=60)]
    assert sorted(taken) == ["A1", "B9"]
    rest = [lease.reference for lease in await order_leases.lease_due(plain, many=10, event_max=10, lease_s=60)]
    assert sorted(rest) == ["A2", "A3"]
    assert await order_leases.lease_due(plain, many=10, event_max=10, lease_s=60) == []


async def test_no_event_takes_every_worker(postgres, plain):
    for number in range(5):
        await add(postgres, f"A{number}", join_seq=number)
    assert len(await order_leases.lease_due(plain, many=10, event_max=2, lease_s=60)) == 2
    assert await order_leases.lease_due(plain, many=10, event_max=2, lease_s=60) == []


async def test_two_takers_never_get_the_same_order(postgres, plain):
    for number in range(40):
        await add(postgres, f"A{number}", join_seq=number)
    taken: list[str] = []

    async def taker():
        while leases := await order_leases.lease_due(plain, many=3, event_max=100, lease_s=60):
            taken.extend(lease.reference for lease in leases)

    await asyncio.gather(*(taker() for _ in range(4)))
    taken += [lease.reference for lease in await order_leases.lease_due(plain, many=100, event_max=100, lease_s=60)]
    assert len(taken) == len(set(taken)) == 40


async def test_a_lease_that_ran_out_is_taken_by_another(postgres, plain):
    await add(postgres, "A1")
    assert await order_leases.lease_due(plain, many=1, event_max=1, lease_s=0)
    assert await order_leases.lease_due(plain, many=1, event_max=1, lease_s=60)
    assert await order_leases.lease_one(plain, "A1", lease_s=60) is None


async def test_a_nudge_while_in_work_makes_the_order_due_at_once(postgres, plain):
    await add(postgres, "A1")
    [lease] = await order_leases.lease_due(plain, many=1, event_max=1, lease_s=60)
    seen = await order_leases.read(plain, "A1")
    assert seen is not None
    async with postgres.begin() as connection:
        await order_leases.mark_due(connection, "A1")
    [written] = await write(plain, [OrderUpdate(lease, seen, bumps_version=False, release=LeaseRelease(due_in_s=3600))])
    assert isinstance(written, Written)
    assert await order_leases.lease_one(plain, "A1", lease_s=60)


@pytest.mark.parametrize(("answers", "settled"), [(True, 3), (False, 1)])
async def test_a_provider_that_does_not_answer_is_not_asked_for_the_next_order_at_once(
    postgres, plain, monkeypatch, answers, settled
):
    """One worker, three orders: it goes on at once, or pauses first, here for good."""
    monkeypatch.setattr(worker_pool, "PROVIDER_AWAY_PAUSE_S", 3600)
    for number in range(3):
        await add(postgres, f"A{number}", join_seq=number)
    seen = []

    class Processor:
        async def process(self, lease):
            seen.append(lease.reference)
            return answers

    work = asyncio.create_task(
        WorkerPool(plain, cast("OrderProcessor", Processor()), Settings(workers=1, sweep_s=0.05)).run()
    )
    await wait_until(lambda: len(seen) == settled)
    await asyncio.wait([work], timeout=0.3)
    assert seen == [f"A{number}" for number in range(settled)]
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


async def test_a_lost_job_costs_a_sweep(shop, monkeypatch):
    async def lost(connection, reference):
        return None

    monkeypatch.setattr(shop.app.state.deps.job_queue, "enqueue", lost)
    await shop.settled(await shop.order(), "confirmed")


async def test_a_job_wakes_a_worker_long_before_the_sweep(processes):
    shop = await processes.open(sweep_s=10)
    await wait_until(lambda: _listening(shop))
    await shop.settled(await shop.order(), "confirmed", timeout_s=5)


async def test_without_the_job_engine_the_request_settles_its_order_itself(processes):
    shop = await processes.open(sweep_s=10, job_accept_s=0.2)
    async with shop.app.state.deps.db.connect() as elsewhere:
        await elsewhere.execute(text("LOCK TABLE orders.pgqueuer IN ACCESS EXCLUSIVE MODE"))
        answer = await shop.post(shop.body(shop.holds.hold()))
        await elsewhere.rollback()
    assert (answer.status_code, answer.json()["status"]) == (202, "confirmed")
    assert await shop.audit() == {}


async def test_a_job_goes_when_its_transaction_goes(postgres, postgres_url):
    """Enqueued on the driver's own connection, inside SQLAlchemy's transaction."""
    jobs = JobQueue(PostgresSettings(postgres_url=postgres_url), accept_s=1.0)
    async with postgres.connect() as connection:
        await connection.execute(text("SELECT 1"))
        await jobs.enqueue(connection, "A1")
        assert await _jobs(connection) == 1
        await connection.rollback()
        assert await _jobs(connection) == 0


async def test_a_job_outside_a_transaction_is_not_taken(postgres, postgres_url):
    jobs = JobQueue(PostgresSettings(postgres_url=postgres_url), accept_s=1.0)
    async with postgres.connect() as connection:
        with pytest.raises(AssertionError, match="survive its rollback"):
            await jobs.enqueue(connection, "A1")


async def test_a_job_engine_that_is_gone_says_so(postgres, postgres_url):
    jobs = JobQueue(PostgresSettings(postgres_url=postgres_url), accept_s=1.0)
    async with postgres.connect() as connection:
        await connection.execute(text("ALTER TABLE orders.pgqueuer RENAME TO away"))
        with pytest.raises(EnqueueFailed):
            await jobs.enqueue(connection, "A1")


async def test_a_job_that_fails_is_tried_again_and_then_kept(postgres, postgres_url, monkeypatch):
    """pgqueuer's default is to try once and to delete it."""
    for name, value in (("ATTEMPTS_MAX", 2), ("RETRY_FIRST_S", 0.01), ("DEQUEUE_TIMEOUT_S", 0.1)):
        monkeypatch.setattr(job_queue, name, value)
    tried = []

    def broken():
        tried.append(1)
        raise RuntimeError("nobody at home")

    db = JobQueue(PostgresSettings(postgres_url=postgres_url), accept_s=1.0)
    listening = asyncio.create_task(db.listen(broken))
    async with postgres.begin() as connection:
        await connection.execute(text("SELECT 1"))
        await db.enqueue(connection, "A1")

    async def kept():
        async with postgres.connect() as connection:
            return await connection.scalar(text("SELECT count(*) FROM orders.pgqueuer WHERE status = 'failed'"))

    await wait_until(kept, timeout_s=10)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    assert len(tried) > 1


async def test_money_entries_are_never_changed(shop):
    await shop.settled(await shop.order(), "confirmed")
    for change in ("DELETE FROM orders.money_entry", "UPDATE orders.money_entry SET amount_minor = 1"):
        with pytest.raises(Exception, match="append-only"):
            async with shop.app.state.deps.db.begin() as connection:
                await connection.execute(text(change))


async def _jobs(connection):
    return await connection.scalar(text("SELECT count(*) FROM orders.pgqueuer"))


async def _listening(shop):
    async with shop.app.state.deps.db.connect() as connection:
        names = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = :name"
        return await connection.scalar(text(names), {"name": LISTENER})


async def test_a_living_worker_keeps_its_lease_and_never_takes_one_back(postgres, plain):
    await add(postgres, "A1")
    [kept] = await order_leases.lease_due(plain, many=1, event_max=1, lease_s=0)
    await order_leases.extend_lease(plain, [kept], lease_s=60)
    assert await order_leases.lease_due(plain, many=1, event_max=1, lease_s=60) == []
    await add(postgres, "A2")
    [lost] = await order_leases.lease_due(plain, many=1, event_max=9, lease_s=0)
    assert await order_leases.lease_due(plain, many=1, event_max=9, lease_s=0)
    await order_leases.extend_lease(plain, [lost], lease_s=60)
    assert await order_leases.lease_one(plain, "A2", lease_s=60)


@pytest.mark.parametrize("guarded", [True, False])
async def test_work_that_outlasts_a_lease_keeps_it(processes, monkeypatch, guarded):
    """A provider takes longer than a lease lasts. Without extension a second worker charges too."""
    if not guarded:
        monkeypatch.setattr(WorkerPool, "extend_leases", _not_renewed)
    asking = []

    async def never(name, reference):
        if name == "before the provider":
            asking.append(reference)
            await asyncio.Event().wait()

    shop = await processes.open(lease_s=1.0, failpoint=never)
    await shop.order()
    await wait_until(lambda: asking)
    begun = asyncio.get_running_loop().time()
    await wait_until(lambda: len(asking) > 1 or asyncio.get_running_loop().time() - begun > 2.5)
    assert len(asking) == (1 if guarded else 2)


async def _not_renewed(self):
    return None
