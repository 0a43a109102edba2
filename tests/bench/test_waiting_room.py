"""The benchmarks of the waiting room at tiny sizes: they finish, and their figures measure what their names say."""

import os
import subprocess
import sys
from typing import Any

import pytest

from bench.__main__ import MEASUREMENTS, QUICK
from bench.baselines.line_designs import ListAndHash, PostgresQueue, SortedSet
from bench.harness.cpu import cpu_s, descendants
from bench.harness.measurement import CheckFailed, Effort, Finding
from bench.harness.testbed import Testbed, Trial
from bench.line import designs, memory, refill
from bench.line.our_design import OurDurableLine, OurLine
from bench.line.waiting_rooms import queue
from bench.scale import growth_line, growth_stock
from services.queue import recovery
from services.queue.lottery.ranking import Ranking
from shared.contracts.event_file import EventFile


@pytest.mark.parametrize("design", [SortedSet, ListAndHash, PostgresQueue, OurLine, OurDurableLine])
async def test_a_design_joins_fans_reads_positions_and_admits(trial: Trial, design: Any) -> None:
    async with design.on(trial, connections=2) as line:
        await line.fill(50)
        assert await line.bytes_kept() > 0
        for each in (1, 10):
            joined = await line.join(20, each=each)
            assert (joined.fans, len(joined.latencies_ms)) == (20, 20 / each)
        assert (await line.position(10)).fans == 10
        admitted = await line.admit(20, each=10)
        assert admitted.fans >= 20
        assert len(admitted.latencies_ms) == 2
        assert admitted.per_second > 0


async def test_the_designs_of_a_line_are_compared_in_one_table(
    testbed: Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(designs, "QUICK_FANS", 10)
    monkeypatch.setattr(designs, "CONNECTIONS", 2)
    figures = await designs.find(testbed, QUICK)
    assert [row[:2] for row in figures.rows] == [("300", design.name) for design in designs.DESIGNS]
    assert all(len(row) == len(figures.headings) for row in figures.rows)
    assert len(figures.claims) == 3


async def test_a_fan_takes_bits_in_our_line_and_bytes_in_the_sorted_set(trial: Trial) -> None:
    async with queue(trial, rate_per_s=100_000, liveness_window_s=600) as line:
        ours, _ = await memory.ours_bytes(line, 5_000)
    await trial.flush_redis()
    members, _ = await memory.sorted_set_bytes(trial, 5_000)
    assert 5 / 8 * 5_000 < ours < 2 * 5_000
    assert members > 50 * 5_000


async def test_the_generated_line_has_every_kind_of_place(trial: Trial) -> None:
    sizes = refill.Sizes(3_000, called=50, active=100)
    async with queue(trial) as line:
        await trial.sql(*sizes.sql())
        async with line.state.recovery._db.connect() as connection:
            snapshot = await recovery.read_snapshot(connection, "bench", Ranking(1))
    assert snapshot.lanes == {0: (300, 3_000)}
    assert 40 <= len(snapshot.called) <= 50
    assert 90 <= len(snapshot.active) <= 100
    assert len(snapshot.misses) > 2
    ended = sum(byte.bit_count() for byte in snapshot.done[0])
    assert ended == await trial.count("SELECT count(*) FROM queue.place WHERE ended_at IS NOT NULL")
    assert sum(byte.bit_count() for byte in snapshot.taken[0]) == 300 - len(snapshot.misses)


async def test_a_sorted_set_is_rebuilt_from_the_same_table(trial: Trial) -> None:
    sizes = refill.Sizes(3_000, called=50, active=100)
    async with queue(trial):
        await trial.sql(*sizes.sql())
        assert await refill._rebuild_sorted_set(trial, sizes) > 0


async def test_the_cost_of_a_tick_is_measured_inside_redis(testbed: Testbed) -> None:
    cost = await growth_line.tick_cost(testbed, QUICK, 2_000)
    assert cost.keys() == {"tick, 50 calls", "tick, no calls"}
    assert cost["tick, 50 calls"] > cost["tick, no calls"] > 0


@pytest.mark.parametrize("sections", [10, 100])
def test_events_with_more_or_fewer_sections_have_the_same_tickets(sections: int) -> None:
    event = growth_stock.event(sections)
    EventFile.model_validate(event.model_dump())
    assert (len(event.sections), sum(section.capacity for section in event.sections)) == (sections, 200_000)
    seats = [
        seat for request in growth_stock.hold_requests(sections, 400) if b'"seats"' in request
        for seat in request.split(b'["')[1].split(b'"]')[0].split(b'","')
    ]  # fmt: skip
    assert len(set(seats)) == len(seats) == 400


async def test_a_tick_that_calls_nobody_fails_the_measurement(
    testbed: Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth_line, "RATE_PER_S", 100)
    monkeypatch.setattr("bench.line.waiting_rooms.Queue.tick", _call_nobody)
    with pytest.raises(CheckFailed, match="called 0"):
        await growth_line.tick_cost(testbed, Effort(quick=True), 200)


async def _call_nobody(_: object) -> int:
    return 0


def test_every_measurement_describes_its_settings() -> None:
    for name, make in MEASUREMENTS.items():
        measurement = make()
        assert measurement.settings, name
        assert isinstance(measurement, Finding) or measurement.aim >= measurement.at_least


def test_processor_time_includes_child_processes() -> None:
    before_s = cpu_s(os.getpid())
    sum(range(10**6))
    assert cpu_s(os.getpid()) > before_s > 0
    assert cpu_s(None) == cpu_s() == 0
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert child.pid in descendants({os.getpid()})
    finally:
        child.communicate(b"\n")
