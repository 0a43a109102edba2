"""Ownership of open orders: who wrote one works on it, events in turn; what a silent process has is taken over."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from prometheus_client import REGISTRY
from sqlalchemy import text

from features.reports.orders.flow import FLOW, LIMITS
from features.reports.reading import read
from services.orders.model.order import OpenOrder, Order
from services.orders.model.update import OrderUpdate
from services.orders.settings import Settings
from services.orders.steps.run import Heartbeat, ProviderClient
from services.orders.store import store as store_module
from services.orders.store.store import NotWritten, OrderLost, OrderStore, read_many
from services.orders.tuning import Tuning
from services.orders.worker import worker as worker_module
from services.orders.worker.worker import LISTENER, OrderProcessor, Result, Worker
from shared.errors.problems import Overloaded
from shared.process import load as load_module
from shared.process.load import WITHIN_S, Load, PurchaseWork
from shared.runtime.clock import Clocks
from tests.orders.inventory import EVENT
from tests.orders.manual_orders import ManualShop
from tests.support.wait import wait_until

SILENT = "silent"  # a process that never beats
TAKEOVER_S = 5.0
SYNC_S, SOON_S = 60.0, 15.0  # long before an order is due by itself
ORDER = """
INSERT INTO orders."order" (reference, status, event_id, reservation_id, owner_id, total_minor, currency, customer_name,
                            customer_email, join_seq, expires_at)
VALUES (:reference, 'pending', :event_id, :reference, 'e:h', 1, 'EUR', 'n', 'm', :join_seq, now() + interval '1 h')"""
OPEN = """
INSERT INTO orders.open_order (reference, event_id, join_seq, owner, due_at)
VALUES (:reference, :event_id, :join_seq, :owner, now() + make_interval(secs => :due_in_s))"""
SILENCE = "UPDATE orders.process SET beat_at = beat_at - interval '1 hour' WHERE owner = :owner"
LISTENING = """SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = :name AND query LIKE 'LISTEN%'"""


@dataclass
class Runs:
    """Stands for the processing of orders. `begun` are the runs that began, each with the order it was given, and
    `claims` what each may write; they end when `go_on` is set, with the next of `results`, and are `ended` then.
    """

    begun: list[tuple[str, Order | None]] = field(default_factory=list)
    claims: list[OpenOrder] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    results: list[Result | Exception] = field(default_factory=list)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def references(self) -> list[str]:
        return [reference for reference, _ in self.begun]

    async def process(self, claim: OpenOrder, fresh: Order | None = None) -> Result:
        self.begun.append((claim.reference, fresh))
        self.claims.append(claim)
        await self.go_on.wait()
        self.ended.append(claim.reference)
        result = self.results.pop(0) if self.results else Result(None)
        if isinstance(result, Exception):
            raise result
        return result


@dataclass
class Process:
    """An orders process whose loops and clock a test moves."""

    store: OrderStore
    worker: Worker
    heartbeat: Heartbeat
    load: PurchaseWork
    runs: Runs
    now_s: list[float]

    @property
    def owner(self) -> str:
        return self.store.owner

    @property
    def held(self) -> set[str]:
        return set(self.worker._held)


class Servers:
    """The database of a test, and the processes on it."""

    def __init__(self, stack: AsyncExitStack, postgres: Any, postgres_url: str) -> None:
        self._stack, self.db, self._postgres_url = stack, postgres, postgres_url

    async def open(self, *, workers: int = 10, **tuning: Any) -> Process:
        store = await self._stack.enter_async_context(OrderStore(self.db, Clocks("orders")))
        now_s, runs, load = [0.0], Runs(), Load("orders").purchases
        heartbeat = Heartbeat(TAKEOVER_S, lambda: now_s[0])
        worker = Worker(
            store, cast(OrderProcessor, runs), Settings(postgres_url=self._postgres_url), load, heartbeat,
            Tuning(takeover_s=TAKEOVER_S, workers=workers, **tuning),
        )  # fmt: skip
        self._stack.push_async_callback(worker.close)
        self._stack.callback(runs.go_on.set)
        return Process(store, worker, heartbeat, load, runs, now_s)

    async def add(
        self, *references: str, owner: str = SILENT, event_id: str = "a", join_seq: int | None = None, due_in_s: int = 0
    ) -> None:
        """Open orders of this owner; a reference has a letter, and the number in line unless `join_seq` is given."""
        for reference in references:
            number = int(reference[1:]) if join_seq is None else join_seq
            bound = {"reference": reference, "event_id": event_id, "join_seq": number}
            await self.run(ORDER, **bound)
            await self.run(OPEN, **bound, owner=owner, due_in_s=due_in_s)

    async def run(self, statement: str, **bound: Any) -> None:
        async with self.db.begin() as connection:
            await connection.execute(text(statement), bound)

    async def owners(self) -> dict[str, tuple[str, int]]:
        """The owner and the epoch of each open order."""
        async with self.db.connect() as connection:
            rows = await connection.execute(text("SELECT reference, owner, epoch FROM orders.open_order"))
            return {row.reference: (row.owner, row.epoch) for row in rows}

    async def order(self, reference: str) -> Order:
        return (await read_many(self.db, [reference]))[reference]


@pytest.fixture
async def servers(postgres: Any, postgres_url: str) -> AsyncIterator[Servers]:
    async with AsyncExitStack() as stack:
        yield Servers(stack, postgres, postgres_url)


def opened(reference: str, event_id: str = "a") -> OpenOrder:
    return OpenOrder(reference, "", 0, event_id, int(reference[1:]))


async def test_events_take_turns_and_of_each_the_lowest_number_in_line_is_first(servers: Servers) -> None:
    one = await servers.open(workers=0)
    for order in (opened("A3"), opened("A1"), opened("A2"), opened("B9", "b")):
        one.worker.wake(order)
    one.runs.go_on.set()
    one.worker._workers_max = 1
    one.worker.begin_ready()
    await wait_until(lambda: len(one.runs.begun) == 4)
    assert one.runs.references == ["A1", "B9", "A2", "A3"]


async def test_an_order_of_a_silent_process_is_taken_over_by_one_other(servers: Servers) -> None:
    """One of them is locked at first: the others are taken meanwhile, and nobody takes what another has taken."""
    others = [await servers.open() for _ in range(4)]
    await servers.add(*(f"A{n}" for n in range(40)))
    async with servers.db.connect() as connection:
        await connection.execute(text("SELECT FROM orders.open_order WHERE reference = 'A0' FOR UPDATE"))
        sweeps = asyncio.gather(*(other.worker.sweep() for other in others))
        await asyncio.wait([sweeps], timeout=1)
    await sweeps
    await asyncio.gather(*(other.worker.sweep() for other in others))
    taken = [reference for other in others for reference in other.held]
    assert len(taken) == len(set(taken)) == 40
    assert await servers.owners() == {reference: (other.owner, 1) for other in others for reference in other.held}


async def test_only_orders_of_a_silent_process_are_taken_over_first_in_line_first(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "TAKEN_MAX", 2)
    one, other = await servers.open(), await servers.open()
    await one.worker.sweep()
    await servers.add("A3", "A1", "A2", owner=one.owner, due_in_s=3600)
    await other.worker.sweep()
    assert other.held == set(), "its process is alive"
    before = taken_over()
    await servers.run(SILENCE, owner=one.owner)
    await other.worker.sweep()
    assert (other.held, taken_over() - before) == ({"A1", "A2"}, 2)
    await one.worker.sweep()
    await other.worker.sweep()
    assert other.held == {"A1", "A2"}, "alive again: what is left stays its own"
    assert other.runs.begun == [], "what is not due yet waits"


async def test_what_a_process_writes_after_it_lost_an_order_is_refused(servers: Servers) -> None:
    one, other = await servers.open(), await servers.open()
    await one.worker.sweep()
    await servers.add("A1", "A2", owner=one.owner)
    lost, kept = OpenOrder("A1", one.owner, 0), OpenOrder("A2", one.owner, 0)
    before = {claim: await one.store.read_claimed(claim) for claim in (lost, kept)}
    await servers.run("UPDATE orders.open_order SET owner = :owner WHERE reference = 'A1'", owner=SILENT)
    await other.worker.sweep()
    assert other.held == {"A1"}
    written = await asyncio.gather(
        *(one.store.save(OrderUpdate(before[claim], claim).set_order(charge_ref="c")) for claim in before),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in written] == [NotWritten, Order]
    assert [(await servers.order(reference)).charge_ref for reference in ("A1", "A2")] == [None, "c"]
    with pytest.raises(OrderLost):
        await one.store.read_claimed(lost)
    of_an_earlier_time = OpenOrder("A1", other.owner, 0)
    with pytest.raises(NotWritten):
        await other.store.save(OrderUpdate(before[lost], of_an_earlier_time).set_order(charge_ref="c"))
    taken = OpenOrder("A1", other.owner, 1)
    await other.store.save(OrderUpdate(await other.store.read_claimed(taken), taken).set_order(charge_ref="mine"))
    assert (await servers.order("A1")).charge_ref == "mine"


async def test_an_update_of_an_order_that_was_asked_for_something_since_is_refused(servers: Servers) -> None:
    one, other = await servers.open(), await servers.open()
    await one.worker.sweep()
    await servers.add("A1", owner=one.owner)
    claim = OpenOrder("A1", one.owner, 0)
    read_before = await one.store.read_claimed(claim)
    assert await other.store.wake(["A1", "UNKNOWN"]) == ["A1"]
    with pytest.raises(NotWritten):
        await one.store.save(OrderUpdate(read_before, claim).set_order(status="cancelled"))
    assert (await servers.order("A1")).status == "pending"
    await one.store.save(OrderUpdate(await one.store.read_claimed(claim), claim).set_order(status="cancelled"))
    assert (await servers.order("A1")).status == "cancelled"


async def test_an_order_that_is_begun_after_a_silence_is_read_first(servers: Servers) -> None:
    """It may be another process' by then. A process that rests says that it is alive before it acts."""
    one = await servers.open(workers=0)
    await one.worker.sweep()
    await servers.add("A1", "A2", owner=one.owner)
    one.worker.add(await servers.order("A1"))
    one.now_s[0] += TAKEOVER_S
    assert not one.heartbeat.is_fresh
    one.worker._workers_max = 2
    one.worker.begin_ready()
    await wait_until(lambda: one.runs.begun)
    assert one.heartbeat.is_fresh
    fresh = await servers.order("A2")
    one.worker.add(fresh)
    await wait_until(lambda: len(one.runs.begun) == 2)
    assert one.runs.begun == [("A1", None), ("A2", fresh)]


async def test_an_order_that_is_ours_again_is_processed_as_we_own_it_now(servers: Servers) -> None:
    """It was another process' meanwhile: what a run of before writes is refused."""
    one = await servers.open(workers=0)
    one.worker.wake(opened("A1"))
    one.worker.wake(opened("A1")._replace(epoch=2))
    one.runs.go_on.set()
    one.worker._workers_max = 1
    one.worker.begin_ready()
    await wait_until(lambda: not one.held)
    assert [(claim.reference, claim.epoch) for claim in one.runs.claims] == [("A1", 2)]


async def test_an_order_asked_for_something_while_it_is_in_work_is_processed_again(servers: Servers) -> None:
    one = await servers.open()
    one.worker.wake(opened("A1"))
    await wait_until(lambda: one.runs.begun)
    one.worker.wake(opened("A1"))
    one.worker.wake(opened("A1"))
    assert one.worker.in_work() == ["A1"]
    one.runs.go_on.set()
    await wait_until(lambda: not one.held)
    assert one.runs.references == ["A1", "A1"]


@pytest.mark.parametrize("failed", [RuntimeError("a bug"), ConnectionError("no database")])
async def test_an_unexpected_exception_does_not_lose_the_order(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, failed: Exception
) -> None:
    errors = list[str]()
    monkeypatch.setattr(worker_module.log, "exception", lambda event, **_: errors.append(event))
    for pause in ("FAILED_PAUSE_S", "DB_AWAY_PAUSE_S"):
        monkeypatch.setattr(worker_module, pause, 0.01)
    one = await servers.open(workers=1)
    one.runs.results = [failed, Result(None)]
    one.runs.go_on.set()
    one.worker.wake(opened("A1"))
    working = asyncio.create_task(one.worker.run())
    await wait_until(lambda: len(one.runs.begun) == 2 and not one.held)
    assert errors == (["order.processing_failed"] if isinstance(failed, RuntimeError) else [])
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)


@pytest.mark.parametrize(("away", "processed"), [(False, 3), (True, 1)])
async def test_a_worker_pauses_after_a_provider_did_not_answer(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, away: bool, processed: int
) -> None:
    """One worker has three orders: it continues at once, or pauses first, here for an hour."""
    monkeypatch.setattr(worker_module, "PROVIDER_AWAY_PAUSE_S", 3600)
    one = await servers.open(workers=1, handover_s=0.01)
    one.runs.results = [Result(None, provider_away=away) for _ in range(3)]
    one.runs.go_on.set()
    for n in range(3):
        one.worker.wake(opened(f"A{n}"))
    await wait_until(lambda: len(one.runs.begun) == processed)
    for _ in range(10):
        await asyncio.sleep(0)
    assert one.runs.references == [f"A{n}" for n in range(processed)]


async def test_orders_whose_answer_was_lost_are_found_while_in_doubt(servers: Servers) -> None:
    """This process owns them by the database, and does not know."""
    one = await servers.open()
    await servers.add("A1", "A2", owner=one.owner, due_in_s=3600)
    one.worker.wake(opened("A2"))
    await one.worker.sweep()
    assert one.held == {"A2"}, "it is not looked for in every sweep"
    one.worker.doubt()
    await one.worker.sweep()
    assert one.held == {"A1", "A2"}
    await wait_until(lambda: one.runs.references == ["A2"])  # what is known is left alone


async def test_a_process_that_is_behind_gives_its_next_orders_to_one_with_free_workers(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as are free there."""
    monkeypatch.setattr(worker_module, "BEHIND_S", -1.0)
    behind, free = await servers.open(workers=1), await servers.open(workers=2)
    await behind.worker.sweep()
    references = [f"A{n}" for n in range(6)]
    await servers.add(*references, owner=behind.owner)
    for reference in references:
        behind.worker.wake(opened(reference))
    await behind.worker.sweep()
    assert behind.held == set(references), "nobody else is there"
    await free.worker.sweep()
    await behind.worker.sweep()
    assert behind.held == {"A0", "A3", "A4", "A5"}
    await free.worker.sweep()
    await wait_until(lambda: len(free.runs.begun) == 2)
    assert free.runs.references == ["A1", "A2"]
    assert {r for r, owned in (await servers.owners()).items() if owned == (free.owner, 2)} == {"A1", "A2"}
    await free.worker.sweep()
    await behind.worker.sweep()
    assert behind.held == {"A0", "A3", "A4", "A5"}, "the other one has enough to do"


async def test_a_process_that_stops_finishes_what_is_in_work_and_leaves_the_rest_to_others(servers: Servers) -> None:
    one, other = await servers.open(workers=1, handover_s=60), await servers.open()
    await one.worker.sweep()
    await servers.add("A1", "A2", owner=one.owner)
    for n in (1, 2):
        one.worker.wake(opened(f"A{n}"))
    await wait_until(lambda: one.runs.begun)
    closing = asyncio.create_task(one.worker.close())
    await asyncio.sleep(0)
    await other.worker.sweep()
    assert (other.held, closing.done()) == (set(), False)
    await servers.add("A3", due_in_s=3600)
    await one.worker.sweep()
    assert (await servers.owners())["A3"] == (SILENT, 0), "it takes over no more"
    one.runs.go_on.set()
    await closing
    assert one.runs.references == one.runs.ended == ["A1"], "it is not broken off, and no other begins"
    assert {owner for owner, _ in (await servers.owners()).values()} == {"", SILENT}
    await other.worker.sweep()
    assert other.held == {"A1", "A2", "A3"}


async def test_a_process_that_stops_does_not_wait_for_ever(servers: Servers) -> None:
    one = await servers.open(handover_s=0.05)
    one.worker.wake(opened("A1"))
    await wait_until(lambda: one.runs.begun)
    await one.worker.close()
    assert one.worker.in_work() == []


async def test_concurrent_changes_of_an_order_are_all_kept(servers: Servers) -> None:
    """By several processes; what decides against a change, or fails, changes nothing."""
    processes = [await servers.open() for _ in range(3)]
    await servers.add("A1")
    seen = list[int]()

    async def begin(_: Any, order: Order) -> OrderUpdate:
        seen.append(len(order.journal))
        return OrderUpdate(order).begin_command("refund", caused_by="ops")

    async def nothing(_: Any, order: Order) -> None:
        return None

    async def fail(_: Any, order: Order) -> OrderUpdate:
        raise ValueError

    changes = [one.store.change("A1", begin) for one in processes * 4]
    assert await asyncio.gather(*changes) == [True] * 12
    assert sorted(seen) == list(range(12)), "each saw those before it"
    order = await servers.order("A1")
    assert (len(order.journal), order.wakes) == (12, 12)
    assert await processes[0].store.change("A1", nothing) is False
    with pytest.raises(ValueError):  # noqa: PT011 - ours
        await processes[0].store.change("A1", fail)
    after = await servers.order("A1")
    assert replace(after, now_ms=order.now_ms) == order


async def test_only_work_that_a_newcomer_left_counts_as_done(servers: Servers) -> None:
    """Other work says nothing about how many newcomers can be served."""
    one = await servers.open()
    await one.worker.sweep()
    await servers.add("A1", "A2", owner=one.owner)
    one.runs.go_on.set()
    one.worker.wake(opened("A1"))
    await wait_until(lambda: not one.held)
    assert one.load.done == 0
    one.worker.add(await servers.order("A2"))
    await wait_until(lambda: not one.held)
    assert one.load.done == 1


async def test_an_order_in_work_is_load_unless_a_provider_has_it(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_module, "LEAST_MAX", 1)
    monkeypatch.setattr(load_module, "CROWD_MAX", 1)
    calls, working = asyncio.Event(), asyncio.Event()
    one = await servers.open()

    class Client:
        async def request(self, *_: Any, **__: Any) -> None:
            await calls.wait()

    provider = ProviderClient(cast(Any, Client()), one.load, one.heartbeat)
    process = one.runs.process

    async def call_first(claim: OpenOrder, fresh: Order | None = None) -> Result:
        working.set()
        await provider.request("POST", "/", headers={}, timeout_s=1)
        return await process(claim, fresh)

    one.runs.process = call_first  # type: ignore[method-assign]
    one.worker.wake(opened("A1"))
    await working.wait()
    one.load.begin(within_s=WITHIN_S)
    one.load.end()
    calls.set()
    await wait_until(lambda: one.runs.begun)
    with pytest.raises(Overloaded):
        one.load.begin(within_s=WITHIN_S)
    one.runs.go_on.set()
    await wait_until(lambda: not one.held)
    one.load.begin(within_s=WITHIN_S)


def calling(one: Process) -> tuple[list[str], asyncio.Event]:
    """From now on each run calls a provider first: for which orders so far, and the event with which it answers."""
    called, answers, process = list[str](), asyncio.Event(), one.runs.process

    class Client:
        async def request(self, *_: Any, **__: Any) -> None:
            await answers.wait()

    provider = ProviderClient(cast(Any, Client()), one.load, one.heartbeat)

    async def call_first(claim: OpenOrder, fresh: Order | None = None) -> Result:
        called.append(claim.reference)
        await provider.request("POST", "/", headers={}, timeout_s=1)
        return await process(claim, fresh)

    one.runs.process = call_first  # type: ignore[method-assign]
    return called, answers


async def test_an_order_that_waits_for_a_provider_takes_no_worker(servers: Servers) -> None:
    """The next begins, the lowest number in line first; but none while those whose provider has answered take them."""
    one = await servers.open(workers=1)
    called, answers = calling(one)
    for n in (2, 3, 1):
        one.worker.wake(opened(f"A{n}"))
    await wait_until(lambda: len(called) == 3)
    assert called == ["A2", "A1", "A3"], "the worker was free when the first came"
    answers.set()
    await wait_until(lambda: one.load.outside_now == 0)
    one.worker.wake(opened("A4"))
    await asyncio.sleep(0)
    assert one.worker.waiting == 1
    one.runs.go_on.set()
    await wait_until(lambda: not one.held)


@pytest.mark.parametrize(("in_work_max", "files_max"), [(2, 1024), (4096, 5)])
async def test_a_provider_that_hangs_does_not_take_all_memory_and_all_files(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, in_work_max: int, files_max: int
) -> None:
    monkeypatch.setattr(worker_module, "descriptors_max", lambda: files_max)
    one = await servers.open(in_work_max=in_work_max)
    _, answers = calling(one)
    for n in range(4):
        one.worker.wake(opened(f"A{n}"))
    await wait_until(lambda: one.load.outside_now == 2)
    assert (one.worker.waiting, len(one.worker.in_work())) == (2, 2)
    one.runs.go_on.set()
    answers.set()
    await wait_until(lambda: not one.held)


async def test_an_order_in_work_waits_for_nobody_and_one_without_a_worker_is_due(servers: Servers) -> None:
    """As the flow of the event shows it: a provider that takes its time is no lack of workers."""
    one = await servers.open(workers=2)
    await one.worker.sweep()

    async def due_after(*references: str) -> int:
        await servers.add(*references, owner=one.owner)
        for reference in references:
            one.worker.wake(opened(reference))
        await one.worker.sweep()
        return await due()

    async def due() -> int:
        [row] = await read(servers.db, FLOW, event_id="a", takeover_s=TAKEOVER_S, **LIMITS)
        return int(row["due"])

    assert await due_after("A1", "A2") == 0, "both are in work"
    assert await due_after("A3", "A4", "A5") == 3
    await servers.run(SILENCE, owner=one.owner)
    assert await due() == 5, "nobody works on any"


async def test_an_order_that_finds_no_free_worker_is_load(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_module, "LEAST_MAX", 3)
    monkeypatch.setattr(load_module, "CROWD_MAX", 3)
    one = await servers.open(workers=1)
    for n in range(3):
        one.worker.wake(opened(f"A{n}"))
    await one.worker.sweep()
    await wait_until(lambda: one.load.to_do() == 3)
    with pytest.raises(Overloaded):
        one.load.begin(within_s=WITHIN_S)
    one.runs.go_on.set()
    await wait_until(lambda: not one.held)
    one.load.begin(within_s=WITHIN_S)


async def test_orders_that_a_provider_held_up_and_those_behind_them_are_load_that_refuses_nobody(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_module, "LEAST_MAX", 2)
    monkeypatch.setattr(load_module, "CROWD_MAX", 2)
    monkeypatch.setattr(worker_module, "PROVIDER_AWAY_PAUSE_S", 0.0)
    one = await servers.open(workers=1)
    one.runs.results = [Result(due_in_s=0.05, provider_away=True)]
    one.runs.go_on.set()
    one.worker.wake(opened("A1"))
    await wait_until(lambda: one.worker._held["A1"].away)
    one.runs.go_on.clear()
    await wait_until(lambda: len(one.runs.begun) == 2)
    for n in range(2, 6):
        one.worker.wake(opened(f"A{n}"))
    assert one.load.to_do() == 5
    one.load.begin(within_s=WITHIN_S)
    one.load.end()
    one.runs.go_on.set()
    await wait_until(lambda: not one.held)
    assert (one.worker._away, one.worker._held_up, one.load.to_do()) == (set(), set(), 0)


async def test_sweeps_become_rarer_until_something_comes_in_and_a_process_with_orders_keeps_beating(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "SWEEP_S", 0.001)
    monkeypatch.setattr(worker_module, "QUIET_S", 0.004)
    one = await servers.open(workers=0)
    one.worker._sweep_pause_s = 0.001
    pauses = list[float]()
    for _ in range(4):
        await one.worker._wait()
        pauses.append(one.worker._sweep_pause_s)
    assert pauses == [0.002, 0.004, 0.004, 0.004]
    one.worker.wake(opened("A2"))
    assert one.worker._sweep_pause_s == 0.001
    one.worker._sweep_pause_s = 3600.0
    one.worker._nudged.set()
    asyncio.get_running_loop().call_later(0.05, one.worker._nudged.set)
    await one.worker._wait()
    assert one.worker._sweep_pause_s == TAKEOVER_S / 2.5


@asynccontextmanager
async def two_that_never_sweep(processes: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Any, Any]]:
    """After their first moments: what the second does to orders of the first arrives by a notification, or never."""
    monkeypatch.setattr(worker_module, "SWEEP_S", 3600.0)
    shops = [await processes.open(takeover_s=7200.0, provider_sync_interval_s=SYNC_S) for _ in range(2)]

    async def listening() -> bool:
        return await shops[0].scalar(LISTENING, name=LISTENER) == 2

    await wait_until(listening)
    yield shops[0], shops[1]


async def test_what_is_asked_of_an_order_elsewhere_reaches_its_process_at_once(
    processes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_that_never_sweep(processes, monkeypatch) as (owner, other):
        cancelled, paid_again = await owner.order(method="redirect"), await owner.order(method="decline")
        await wait_until(lambda: owner.attempt_is(cancelled, "requires_action"))
        await wait_until(lambda: owner.attempt_is(paid_again, "failed"))
        assert (await other.cancel(cancelled)).is_success
        assert (await other.pay_again(paid_again)).status_code == 202
        await other.wait_until_settled(cancelled, "cancelled", timeout_s=SOON_S)
        await other.wait_until_settled(paid_again, "confirmed", timeout_s=SOON_S)
        await wait_until(lambda: not owner.state.worker._held, timeout_s=SOON_S)  # it is told who has it now
        assert not other.state.worker._held
        refund = await other.admin_post(f"{paid_again}/refund")
        assert refund.is_success, "of an order that is not open it is the process that was asked"
        await other.wait_until_settled(paid_again, "refunded", timeout_s=SOON_S)


async def test_a_lost_notification_is_found_by_a_sweep(processes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, other = [await processes.open(takeover_s=60.0, provider_sync_interval_s=SYNC_S) for _ in range(2)]
    reference = await owner.order(method="redirect")
    await wait_until(lambda: owner.attempt_is(reference, "requires_action"))

    async def lose(*_: Any) -> None:
        return None

    monkeypatch.setattr(store_module, "notify", lose)
    assert (await other.cancel(reference)).is_success
    await other.wait_until_settled(reference, "cancelled", timeout_s=SOON_S)


async def test_a_broken_connection_of_the_listener_is_opened_again(
    processes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_that_never_sweep(processes, monkeypatch) as (owner, other):
        reference = await owner.order(method="redirect")
        await wait_until(lambda: owner.attempt_is(reference, "requires_action"))
        ended = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = :name"
        assert await owner.scalar(f"{ended} AND datname = current_database()", name=LISTENER) == 2

        async def listening() -> bool:
            return await owner.scalar(LISTENING, name=LISTENER) == 2

        await wait_until(listening)
        assert (await other.cancel(reference)).is_success
        await other.wait_until_settled(reference, "cancelled", timeout_s=SOON_S)


async def test_a_process_takes_over_at_once_what_one_that_stopped_has_left(processes: Any) -> None:
    """Long before a silent process would be noticed."""
    other = await processes.open(takeover_s=600.0)
    async with AsyncExitStack() as stack:
        stopped = await processes.open(takeover_s=600.0, stack=stack)
        reference = await stopped.order(method="redirect")
        await wait_until(lambda: stopped.attempt_is(reference, "requires_action"))
    await wait_until(lambda: reference in other.state.worker._held)
    assert (await other.cancel(reference)).is_success
    await other.wait_until_settled(reference, "cancelled", timeout_s=SOON_S)


async def test_money_entries_are_never_changed(shop: Any) -> None:
    await shop.wait_until_settled(await shop.order(), "confirmed")
    for change in ("DELETE FROM orders.money_entry", "UPDATE orders.money_entry SET amount_minor = 1"):
        with pytest.raises(Exception, match="append-only"):
            await shop.run(change)


def taken_over() -> float:
    return REGISTRY.get_sample_value("orders_taken_over_total") or 0


async def test_a_thousand_orders_of_another_process_are_told_of_at_once(manual: ManualShop) -> None:
    """One notification takes 8,000 bytes."""
    woken = [OpenOrder(f"{n:012}", "another", 0, EVENT, n) for n in range(1000)]
    await manual.state.store.tell(woken)
