"""Every measurement runs at a tiny size, and its checks find answers that are not stored and designs that oversell."""

import itertools
import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
import redis.asyncio
from rich.console import Console

from bench.__main__ import MEASUREMENTS, QUICK, measure
from bench.baselines.stock_designs import AdvisorySum, ForUpdate, HotCounter, ReadThenWrite, TtlKey, UnitRows
from bench.harness import cost as harness_cost
from bench.harness.cost import LoadSummary, Workload, cost
from bench.harness.load import LoadResult
from bench.harness.measurement import CheckFailed, Finding, Testbed, Trial, cpu_s, descendants
from bench.line import admissions, joins
from bench.line.admissions import Admitted
from bench.record import report
from bench.scale import growth_line, growth_stock
from bench.stock import last_tickets, reservations, stock_designs
from bench.stock.hold_expiry import TtlKeyExpiry
from bench.stock.our_stock import OurStock, Venue
from onsale.local.engines import with_driver
from shared.contracts.event_file import EventFile
from tests.support.engines.tcp_proxy import with_delay

pytestmark = pytest.mark.proof  # a change of the product breaks none of it

Rows = Sequence[Sequence[str]]
SHOWN: dict[str, Callable[[Rows], bool]] = {  # what must stand in the table at any size
    "endings": lambda rows: all(int(row[-1]) > 0 for row in rows if row[0] == TtlKeyExpiry.name),
    "memory": lambda rows: float(rows[-1][1]) < 2 < 50 < float(rows[-1][3]),
}


@pytest.mark.proof
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", MEASUREMENTS)
async def test_a_measurement_runs_and_its_checks_hold(
    testbed: Testbed, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.line.status.CALLS_PER_POLL_MAX", 0.1)  # of few polls
    measurement = MEASUREMENTS[name]()
    await measure(testbed, measurement, QUICK, Console(quiet=True))
    assert report.section(measurement).count(f"## {measurement.key}") == 1
    if isinstance(measurement, Finding):
        assert measurement.found.claims
        assert {len(row) for row in measurement.found.rows} == {len(measurement.found.headings)}
        assert SHOWN.get(name, bool)(measurement.found.rows)


def result(*bodies: dict[str, Any]) -> LoadResult:
    return LoadResult(1, statuses=Counter({201: len(bodies)}), created=[orjson.dumps(body) for body in bodies])


async def test_the_check_of_joins_finds_numbers_that_are_answered_twice_or_not_on_disk(trial: Trial) -> None:
    await trial.sql("INSERT INTO queue.place (event_id, epoch, lane, join_seq, holder) "
                    "SELECT 'bench', 1, 0, n, 'fan-' || n FROM generate_series(1, 2) n")  # fmt: skip
    assert await joins.compare(trial, result({"join_seq": 1}, {"join_seq": 2}), "queue.place")
    for answered in ((1, 1), (1,), (1, 3), (1, 2, 3)):
        with pytest.raises(CheckFailed, match=f"{len(answered)} joins answered"):
            await joins.compare(trial, result(*({"join_seq": n} for n in answered)), "queue.place")


def call(place: int, *, jti: str | None = None, state: str = "claimed", deadline_ms: int = 0) -> dict[str, Any]:
    return {"join_seq": place, "state": state, "jti": jti or f"pass-{place}", "deadline_ms": deadline_ms or place // 3}


@pytest.mark.parametrize(
    ("calls", "finding"),
    [
        ([call(1), call(2), call(2), call(3), call(4)], "1 twice, 0 lost, 0 passed over, 0 inversions, 0 passes"),
        ([call(1), call(2), call(3), call(4, state="called")], "0 twice, 1 lost, 0 passed over, 0 inversions, 0"),
        ([call(1), call(2), call(3), call(4, jti="other")], "0 twice, 1 lost, 0 passed over, 0 inversions, 0"),
        ([call(1), call(2), call(3), call(4), call(5)], "0 twice, 1 lost, 0 passed over, 0 inversions, 0"),
        ([call(2), call(3), call(4)], "0 twice, 0 lost, 1 passed over, 0 inversions, 0 passes"),
        ([call(1, deadline_ms=9), call(2), call(3), call(4)], "0 twice, 0 lost, 0 passed over, 1 inversions, 0"),
        ([call(1), call(2), call(3)], "0 twice, 0 lost, 0 passed over, 0 inversions, 1 passes without a call"),
    ],
    ids=["called twice", "not claimed", "another pass", "no pass", "passed over", "overtaken", "no call"],
)
def test_the_check_of_admissions_finds(calls: list[dict[str, Any]], finding: str) -> None:
    def admitted(first: int) -> Admitted:
        return Admitted(jtis={place: f"pass-{place}" for place in range(first, 5)})

    assert admissions.compare([call(1), call(2), call(3), call(4)], admitted(1))
    with pytest.raises(CheckFailed, match=finding):
        admissions.compare(calls, admitted(calls[0]["join_seq"]))


def test_admissions_of_nobody_are_not_measured() -> None:
    with pytest.raises(CheckFailed, match="0 calls"):
        admissions.compare([], Admitted())


@pytest.mark.parametrize(
    ("on_disk", "seats", "ga", "second"),
    [(1, 2, 2, "B"), (2, 1, 2, "B"), (2, 2, 4, "B"), (2, 1, 2, "A")],
    ids=["not on disk", "a seat not held", "tickets not taken", "a seat answered twice"],
)
def test_the_check_of_reservations_finds(on_disk: int, seats: int, ga: int, second: str) -> None:
    answers = [{"reservation_id": n, "seats": [seat], "ga_quantity": 1} for n, seat in enumerate(("A", second))]
    with pytest.raises(CheckFailed):
        reservations.compare(result(*answers), on_disk=on_disk, seats=seats, ga=ga)
    answers[1]["seats"] = ["B"]
    assert reservations.compare(result(*answers), on_disk=2, seats=2, ga=2)


def test_half_of_the_requests_are_for_seats_and_no_seat_is_requested_twice() -> None:
    def bodies(requests: list[bytes]) -> list[dict[str, Any]]:
        return [orjson.loads(request.partition(b"\r\n\r\n")[2]) for request in requests]

    for sections in (10, 100):
        event = growth_stock.event(sections)
        EventFile.model_validate(event.model_dump())
        assert (len(event.sections), sum(section.capacity for section in event.sections)) == (sections, 200_000)
        of_event = bodies(growth_stock.hold_requests(sections, 400))
        assert len({seat for body in of_event for seat in body.get("seats", [])}) == 400
    found = bodies(reservations.reservation_requests(of=400))
    seats = [seat for body in found for seat in body.get("seats", [])]
    assert len(set(seats)) == len(seats) == 400
    assert Counter(body["ga"][0]["section_id"] for body in found if "ga" in body) == dict.fromkeys(
        ("GA0", "GA1", "GA2", "GA3"), 50
    )


@pytest.mark.parametrize("kind", [OurStock, ForUpdate, HotCounter, UnitRows, AdvisorySum, TtlKey])
async def test_a_design_sells_all_tickets_and_none_twice(trial: Trial, kind: Any) -> None:
    async with kind.on(with_driver(trial.postgres_url), trial.redis_url) as design:
        for show in (Venue("small", 2, 20), Venue("another", 2, 20)):
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


async def test_a_run_that_refuses_or_calls_nobody_fails(
    testbed: Testbed, trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def call_nobody(_: object) -> int:
        return 0

    monkeypatch.setattr(stock_designs, "CAPACITY", 10)
    async with TtlKey.on("", trial.redis_url) as empty:
        with pytest.raises(CheckFailed, match="refused"):
            await stock_designs.sell_once(testbed, empty, stock_designs.CASES[0], 0.05)
    monkeypatch.setattr("bench.line.waiting_rooms.Queue.tick", call_nobody)
    with pytest.raises(CheckFailed, match="called 0"):
        await growth_line.tick_cost(testbed, QUICK, 200)


async def test_a_slower_database_is_slower_for_the_measurement_alone(trial: Trial) -> None:
    url = with_driver(trial.postgres_url)
    async with with_delay(url, 20) as slower:
        assert await stock_designs._ping_ms(slower, "SELECT 1") > 19
    with pytest.raises(OSError, match="Connect"):
        await stock_designs._ping_ms(slower, "SELECT 1")
    commit_delay = "SELECT current_setting('commit_delay')::int"
    async with stock_designs.database_url(trial, stock_designs.DISK):
        assert await trial.count(commit_delay) == 2000
    assert await trial.count(commit_delay) == 0


async def test_the_cost_of_an_answer_counts_what_was_written_for_it(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness_cost, "REST_S", 0.01)
    write = "INSERT INTO inventory.audit_log (actor, action, subject) SELECT 'x', 'y', 'z' FROM generate_series(1, 40)"

    async def work() -> LoadSummary:
        await trial.sql(write)
        async with redis.asyncio.Redis.from_url(trial.redis_url) as client:
            await client.xadd("log:{0}", {"event": "x" * 1000})
            await client.set("inventory:{x}:map:A", "." * 800)
        return LoadSummary(20, 10.0, 1.0)

    async def check() -> list[str]:
        return ["right"]

    @asynccontextmanager
    async def up(_: Trial) -> AsyncIterator[Workload]:
        await trial.sql(write)  # before the load, but counted: it belongs to the operation
        yield Workload(work, check, redis_keys="inventory:*", outbox_schema="inventory")

    found = await cost(trial, up)
    assert (found.per_answer["rows"], found.checked) == (80 / 20, ["right"])
    assert found.per_answer["wal_bytes"] > 100
    assert 800 / 20 < found.per_answer["kept_bytes"] < 1200 / 20
    assert found.per_answer["log_bytes"] > 1000 / 20
    assert set(found.cpu_us) == set(trial.testbed.pids)


def test_processor_time_includes_child_processes() -> None:
    before_s = cpu_s(os.getpid())
    sum(range(10**6))
    assert cpu_s(os.getpid()) > before_s > 0
    assert cpu_s(None) == cpu_s() == 0
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert child.pid in descendants({os.getpid()})
