"""The benchmarks of the stock at tiny sizes: every design stores the holds it grants, and all figures are there."""

import asyncio
import itertools
import sys
import time
from dataclasses import replace
from typing import Any

import pytest

from bench.baselines import hold_expiry_workers
from bench.baselines.stock_designs import AdvisorySum, ForUpdate, HotCounter, ReadThenWrite, TtlKey, UnitRows
from bench.harness.cpu import descendants
from bench.harness.load import Load, drive
from bench.harness.measurement import CheckFailed, Effort
from bench.harness.testbed import Testbed, Trial
from bench.stock import hold_expiry, hold_expiry_designs, isolation, last_tickets, stock_designs
from bench.stock.hold_expiry import Plan
from bench.stock.our_stock import OurStock
from bench.stock.shop import SaleResult, Venue, until
from onsale.local.engines import with_driver
from onsale.local.ports import HOST
from onsale.local.process import Child
from tests.support.engines.tcp_proxy import with_delay
from tests.support.wait import wait_until

SMALL = Venue("small", 2, 20)


@pytest.mark.parametrize("kind", [OurStock, ForUpdate, HotCounter, UnitRows, AdvisorySum, TtlKey])
async def test_a_design_sells_all_tickets_and_none_twice(trial: Trial, kind: Any) -> None:
    async with kind.on(with_driver(trial.postgres_url), trial.redis_url) as design:
        for show in (SMALL, Venue("another", 2, 20)):
            await design.create_stock(show)
            assert await design.tickets_left(show) == show.capacity
            sold = await design.sell(show, itertools.islice(itertools.cycle((0, 1)), 30), 4)
            assert sold.held + sold.refused == 30
            assert await design.holds_stored(show) == sold.held * 2 <= show.capacity
            assert sold.held == 20 or kind is UnitRows  # which skips rows that another transaction has locked
            await design.end_all(show)
            assert await design.holds_stored(show) == 0
            assert await design.tickets_left(show) == (0 if kind is TtlKey else show.capacity)


async def test_the_benchmark_detects_that_an_unguarded_design_oversells(trial: Trial) -> None:
    async with ReadThenWrite.on(with_driver(trial.postgres_url), trial.redis_url) as design:
        rush = last_tickets.Rush()
        for number in range(20):
            await last_tickets._rush(design, Venue(f"last{number}", 1, 2), 8, rush)
            if rush.oversold:
                return
    pytest.fail("no oversell was detected")


async def test_a_run_whose_answers_are_not_stored_fails(testbed: Testbed, trial: Trial) -> None:
    class Forgetful(HotCounter):
        async def hold(self, section_id: str, hold_id: str) -> bool:
            return await super().hold(section_id, "the same id") or True

    async with Forgetful.on(with_driver(trial.postgres_url), trial.redis_url) as design:
        with pytest.raises(Exception, match="duplicate key"):
            await stock_designs.sell_once(testbed, design, stock_designs.CASES[0], 0.05)
    async with TtlKey.on("", trial.redis_url) as empty:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stock_designs, "CAPACITY", 10)
            with pytest.raises(CheckFailed, match="refused"):
                await stock_designs.sell_once(testbed, empty, stock_designs.CASES[0], 0.05)


def test_requests_end_after_the_given_time() -> None:
    started_s = time.perf_counter()
    assert len(list(until(itertools.repeat(0), 0.01))) > 1
    assert time.perf_counter() - started_s < 5
    sold = SaleResult(held=10, database_cpu_s=0.5)
    sold.add(SaleResult(held=10, database_cpu_s=0.5))
    assert sold.database_cpu_us == 50_000


async def test_a_database_behind_a_delay_answers_later(trial: Trial) -> None:
    url = with_driver(trial.postgres_url)
    async with with_delay(url, 20) as slower:
        assert await stock_designs._ping_ms(slower, "SELECT 1") > 19
    with pytest.raises(OSError, match="Connect"):
        await stock_designs._ping_ms(slower, "SELECT 1")


async def test_the_slower_disk_applies_to_every_connection_and_ends_afterwards(trial: Trial) -> None:
    async with (
        stock_designs.database_url(trial, stock_designs.DISK) as url,
        stock_designs.opened(url, trial.redis_url, (HotCounter,)) as designs,
    ):
        assert await designs[0].pool.fetchval("SHOW commit_delay") == "2000"  # type: ignore[attr-defined]
    assert await trial.count("SELECT current_setting('commit_delay')::int") == 0


async def test_the_designs_of_selling_stock_are_compared_in_one_table(
    testbed: Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = [replace(case, contenders=8, sections=2) for case in (stock_designs.CASES[1], stock_designs.CASES[4])]
    monkeypatch.setattr(stock_designs, "DESIGNS", (OurStock, HotCounter, TtlKey))
    monkeypatch.setattr("gc.collect", lambda: None)  # slow here: it collects the garbage of earlier tests
    monkeypatch.setattr(stock_designs, "CASES", few)
    monkeypatch.setattr(stock_designs, "CLAIMED", few)
    monkeypatch.setattr(stock_designs, "DATABASES", (stock_designs.AS_IT_IS, stock_designs.DISK))
    figures = await stock_designs.find(testbed, Effort(0.02, 4, 1, quick=True))
    assert len(figures.rows) == len(few) * 3
    assert all(len(row) == len(figures.headings) for row in figures.rows)
    assert [claim.beside.split(",")[1].strip() for claim in figures.claims] == ["counter row"] * 3


@pytest.fixture
def workers_in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the textbook's workers in this process."""

    async def serve(trial: Trial, module: str, **environment: str) -> int:
        environment |= {"BENCH_POSTGRES_URL": with_driver(trial.postgres_url), "BENCH_REDIS_URL": trial.redis_url}
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        app = hold_expiry_workers.create_app()
        await trial._servers.enter_async_context(app.router.lifespan_context(app))
        return 0

    monkeypatch.setattr(Trial, "serve_textbook", serve)
    monkeypatch.setattr(hold_expiry_workers, "POLL_S", 0.02)


PLAN = Plan(10, spread_s=0.1, first_in_s=0.2, rest_s=0.02)


@pytest.mark.parametrize(
    "kind", [hold_expiry_designs.TtlKeyExpiry, hold_expiry_designs.ScanExpiry, hold_expiry_designs.JobExpiry]
)
async def test_a_textbook_worker_ends_all_holds(testbed: Testbed, workers_in_process: None, kind: Any) -> None:
    ended = hold_expiry.ExpiryResult()
    await hold_expiry._run_design(testbed, PLAN, kind(), ended, with_faults=False)
    assert len(ended.late_ms) == 10
    assert all(-5 <= late_ms < 4_000 for late_ms in ended.late_ms)


async def test_our_inventory_ends_all_holds(testbed: Testbed) -> None:
    ended = hold_expiry.ExpiryResult()
    await hold_expiry._run_design(
        testbed, replace(PLAN, first_in_s=0.8), hold_expiry_designs.OurExpiry(), ended, with_faults=False
    )
    assert len(ended.late_ms) == 10


async def test_ttl_keys_lose_their_holds_when_valkey_loses_its_data(
    testbed: Testbed, workers_in_process: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hold_expiry, "TIMEOUT_S", 0.2)
    monkeypatch.setattr(hold_expiry, "_kill_worker", hold_expiry._flush_redis)
    ended = hold_expiry.ExpiryResult()
    await hold_expiry._run_design(testbed, PLAN, hold_expiry_designs.TtlKeyExpiry(), ended, with_faults=True)
    assert all(int(held) > 0 for _, held in ended.faults)


async def test_a_killed_worker_is_started_again(testbed: Testbed) -> None:
    class SleepingWorker(hold_expiry_designs.ScanExpiry):
        async def start(self, trial: Trial) -> None:
            name = "sleeper"
            log, lock = testbed.data_dir / "log" / name, testbed.data_dir / "engines" / name
            command = [sys.executable, "-c", "import time; time.sleep(60)"]
            child = Child.start(command, name=name, lock_path=lock, log_path=log, stop_signal="TERM")
            trial._servers.push_async_callback(child.stop)
            trial.pids[name] = child._supervisor.pid
            await wait_until(lambda: len(descendants({child._supervisor.pid})) == 2)

    async with testbed.trial() as trial:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(hold_expiry, "RESTART_AFTER_S", 0)
            await SleepingWorker().start(trial)
            first = descendants(set(trial.pids.values()))
            await hold_expiry._kill_worker(trial, SleepingWorker())
            assert not first & descendants(set(trial.pids.values()))


async def test_fans_with_a_pause_send_fewer_requests() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n")

    async with await asyncio.start_server(answer, HOST, 0) as server:
        port = server.sockets[0].getsockname()[1]
        load = Load(HOST, port, [b"GET / HTTP/1.1\r\n\r\n"], 2, 0.4, warm_up_s=0, repeat=True, pause_s=0.1)
        result = await drive(load)
    assert 1 <= result.statuses[201] <= 2 * 0.4 / 0.05


async def test_the_other_events_are_measured_with_and_without_a_hot_event(
    testbed: Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "SIDES", {"textbook": isolation.open_textbook})
    monkeypatch.setattr(isolation, "PAUSE_S", 0.02)
    monkeypatch.setattr(isolation, "WARM_UP_S", 0.05)
    monkeypatch.setattr("bench.harness.load.run_in_process", drive)
    figures = await isolation.find(testbed, Effort(0.1, 3, 1, quick=True))
    assert [row[1] for row in figures.rows] == ["idle", "paced", "flat out"]
    assert len(figures.claims) == 2
