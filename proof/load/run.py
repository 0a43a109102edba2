"""Load held: what a suite carries is measured, four fifths of it are held while everything that should be flat is
sampled, then three times as much comes for a moment: it is refused clearly, and all is as before five seconds later.

As much comes for seconds before the load is held, so that pools, caches and the memory that the allocator keeps for a
process are as large as they get, and only what grows with the sale still grows.

What is sampled while a suite sells: memory, descriptors (besides the fans' connections), threads and log of each
process, connections, tables and dead rows of PostgreSQL, memory, keys and clients of Redis.

Whether a series of samples is flat: how much it grows over its period, by a slope that outliers do not move and by
its last third against its first.
"""

import asyncio
import os
import statistics
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import redis.asyncio

from onsale.local.engines import start_databases, with_driver
from onsale.simulate.observations import what_stays_wrong
from proof.drills.fleet import Fleet
from proof.load.fans import Crowd, Plan, Span
from proof.part import Budget, Result, Trial
from shared.postgres.migrations import upgrade
from shared.routes import SERVICES, SERVICES_WITH_TABLES, Service
from tests.support.engines.engines import run_in_thread

POINTS_MAX = 100
Series = Sequence[tuple[float, float]]
"""Seconds and values, in the order of time."""


@dataclass(frozen=True)
class Bound:
    """The most that a series may grow over its period: a share of its median, and at least so much."""

    share: float
    least: float

    def most(self, series: Series) -> float:
        return max(self.least, self.share * statistics.median(value for _, value in series))


def slope(series: Series) -> float:
    """By Theil and Sen, in units a second: the median of the slopes between all pairs of windows' medians."""
    points = _windows(series)
    return statistics.median((v - u) / (t - s) for (s, u), (t, v) in combinations(points, 2) if t > s)


def growth(series: Series) -> float:
    """How much it grew: by its slope, or from the median of its first third to that of its last if that is more."""
    third = max(1, len(series) // 3)
    step = statistics.median(value for _, value in series[-third:]) - statistics.median(
        value for _, value in series[:third]
    )
    return max(slope(series) * (series[-1][0] - series[0][0]), step)


def not_flat(name: str, series: Series, bound: Bound, unit: str = "") -> list[str]:
    """A sentence if it grew more than its bound. Fewer than six samples prove nothing."""
    if len(series) < 6:
        return []
    grew, most = growth(series), bound.most(series)
    seconds = series[-1][0] - series[0][0]
    sentence = f"{name} grew by {grew:,.1f}{unit} in {seconds:.0f} s, at most {most:,.1f}{unit} are allowed"
    return [sentence] * (grew > most)


def after(series: Series, warm_up_s: float) -> Series:
    """What was sampled after the warm-up, counted from the first sample."""
    return [point for point in series if point[0] - series[0][0] >= warm_up_s]


def _windows(series: Series) -> list[tuple[float, float]]:
    """At most `POINTS_MAX` medians of samples in a row."""
    size = -(-len(series) // POINTS_MAX)
    edges = [*range(0, len(series), size), len(series)]
    parts = [series[begin:end] for begin, end in pairwise(edges)]
    return [(statistics.mean(t for t, _ in part), statistics.median(v for _, v in part)) for part in parts]


MB, SMALL_TABLE = 1 << 20, 10_000
TABLES = """
    SELECT schemaname || '.' || relname AS name, n_live_tup AS live, n_dead_tup AS dead,
        pg_total_relation_size(relid) AS bytes
    FROM pg_stat_user_tables WHERE schemaname = ANY ($1)"""
CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
FLAT = {  # the last part of a series' name: how much it may grow. Pools open their connections in the first minutes.
    "memory MB": Bound(0.08, 12), "descriptors": Bound(0.25, 64), "threads": Bound(0, 2),
    "postgres connections": Bound(0.1, 6), "redis clients": Bound(0.1, 8), "log bytes a request": Bound(0.15, 100),
    "dead share": Bound(0, 0.25),  # a vacuum comes when a fifth of a table is dead
}  # fmt: skip
PER_SALE = {  # what grows with purchases: how much of it a purchase may cost
    "table KB": 40.0, "redis KB": 6.0, "redis keys": 12.0, "rows": 90.0,
}  # fmt: skip


class Samples:
    """Series by name, and the two readings of what grows with sales."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet, self._began_s = fleet, time.monotonic()
        self._processes = {name: psutil.Process(fleet.programs[name].process.pid) for name in SERVICES}
        self._log = dict.fromkeys(SERVICES, 0)
        self._answers = 0
        self.flat: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self.grown: dict[str, list[float]] = defaultdict(list)

    async def open(self) -> None:
        self._postgres: Any = await asyncpg.connect(with_driver(self._fleet.postgres_url))
        self._redis = redis.asyncio.Redis.from_url(self._fleet.redis_url)

    async def close(self) -> None:
        await self._postgres.close()
        await self._redis.aclose()

    async def take(self, answers: int) -> None:
        """One sample; `answers` have been given so far."""
        at_s = time.monotonic() - self._began_s
        for name, value in [*self._of_processes(answers - self._answers), *await self._of_engines()]:
            self.flat[name].append((at_s, value))
        self._answers = answers

    def _of_processes(self, answers: int) -> Iterator[tuple[str, float]]:
        for name, process in self._processes.items():
            yield f"{name}: memory MB", process.memory_full_info().pss / MB
            yield f"{name}: descriptors", process.num_fds() - self._connections_of_fans(name)
            yield f"{name}: threads", process.num_threads()
            size = self._fleet.programs[name].log_path.stat().st_size
            if answers:
                yield f"{name}: log bytes a request", (size - self._log[name]) / answers
            self._log[name] = size

    def _connections_of_fans(self, name: Service) -> int:
        """They are as many as fans wait for an answer at a time, and are kept for a minute."""
        open_ones = self._processes[name].net_connections("tcp4")
        return sum(each.laddr.port == self._fleet.ports[name][0] and each.status == "ESTABLISHED" for each in open_ones)

    async def _of_engines(self) -> list[tuple[str, float]]:
        info, tables = await self._redis.info(), await self._tables()
        self.grown["redis KB"].append(info["used_memory"] / 1024)
        self.grown["redis keys"].append(await self._redis.dbsize())
        self.grown["table KB"].append(sum(row["bytes"] for row in tables) / 1024)
        self.grown["rows"].append(sum(row["live"] for row in tables))
        return [
            ("postgres connections", await self._postgres.fetchval(CONNECTIONS)),
            ("redis clients", info["connected_clients"]),
            *((f"{row['name']}: dead share", row["dead"] / (row["live"] + SMALL_TABLE)) for row in tables),
        ]

    async def _tables(self) -> list[Any]:
        return list(await self._postgres.fetch(TABLES, ["queue", "inventory", "orders", "console"]))


AT_ONCE, HELD_SHARE, OVERLOAD = 48, 0.8, 3.0
RECOVERED_WITHIN_S, UNSOLD_MAX_S = 5, 3
NEITHER = "neither a success nor a clear refusal"
SAMPLE_S, BURST_MAX_S, HELD_MAX_S, MINUTE_S = 3.0, 15, 30 * 60, 60
ROOM = {"rate_per_s": 5000, "burst": 5000, "max_active": 100_000, "session_s": 900, "claim_window_s": 120}
FLOOR = [{"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 500_000, "price_minor": 3000}]
SETTINGS = {  # caches are full, and memory flat, once so many fans have come: in the first minute
    "GATEWAY_ADDRESS_JOINS_PER_S": "100000", "ONSALE_LOG_REQUESTS": "true", "ONSALE_CACHE_ENTRIES_MAX": "2000",
}  # fmt: skip


@dataclass(frozen=True)
class Phases:
    """Seconds of each; `within` makes them fit a budget."""

    measure_s: float
    burst_s: float
    hold_s: float
    overload_s: float
    settle_s: float

    @classmethod
    def within(cls, seconds: float) -> "Phases":
        return cls(
            min(MINUTE_S, max(4.0, 0.12 * seconds)), min(BURST_MAX_S, max(2.0, 0.03 * seconds)),
            min(HELD_MAX_S, max(8.0, 0.6 * seconds)),
            min(MINUTE_S, max(3.0, 0.1 * seconds)), min(30.0, max(5.0, 0.1 * seconds)),
        )  # fmt: skip


def overload_findings(before: Span, during: Span, later: Span) -> list[str]:
    """What is wrong with the answers while too many came, and from five seconds after that on."""
    wrong = []
    if during.bad:
        wrong.append(f"under {OVERLOAD:g} times the load answers were {NEITHER}: {dict(during.bad)}")
    if not later.answers:
        wrong.append(f"no answer came later than {RECOVERED_WITHIN_S} s after the overload")
    if later.bad or later.refused > before.refused:
        wrong.append(
            f"{RECOVERED_WITHIN_S} s after the overload {later.refused} answers were refusals, bad: {dict(later.bad)}"
        )
    if later.unsold_s > UNSOLD_MAX_S:
        wrong.append(f"later than {RECOVERED_WITHIN_S} s after the overload nobody bought for {later.unsold_s} s")
    if later.p95_ms > 2 * before.p95_ms + 100:
        wrong.append(
            f"{RECOVERED_WITHIN_S} s after the overload p95 was {later.p95_ms:.0f} ms, before it {before.p95_ms:.0f} ms"
        )
    return wrong


def growth_findings(samples: Samples, warm_up_s: float, bought: int) -> list[str]:
    """What was not flat, and what grew more with each purchase than it may."""
    wrong = []
    for name, series in samples.flat.items():
        wrong += not_flat(name, after(series, warm_up_s), FLAT[name.rpartition(": ")[2]])
    for name, most in PER_SALE.items():
        readings = samples.grown[name]
        if len(readings) > 1 and bought and (readings[-1] - readings[0]) / bought > most:
            each = (readings[-1] - readings[0]) / bought
            wrong.append(f"{name} grew by {each:.1f} a purchase, at most {most:g} are allowed")
    return wrong


class Load:
    """One run on a fleet."""

    def __init__(self, fleet: Fleet, folder: Path, budget: Budget) -> None:
        self._fleet, self._folder, self._budget = fleet, folder, budget
        self._phases = Phases.within(budget.seconds)
        self.result = Result(counts={"minutes at 80 %": 0, "requests": 0, "refused": 0})
        self._ports: dict[str, int] = {name: ports[0] for name, ports in fleet.ports.items()}

    async def run(self) -> Result:
        self._event_id = await self._fleet.open_event(sections=FLOOR, room=ROOM)
        capacity = await self._measure()
        if capacity <= 0:
            self._found(["nobody could buy while the capacity was measured"])
            return self.result
        await self._burst(capacity)
        held = self._crowd("held", per_s=HELD_SHARE * capacity)
        try:
            await held.until("bought")
            await self._hold(held)
            await self._overload(held, capacity)
        finally:
            self._count(held.end())
        await self._books()
        return self.result

    async def _measure(self) -> float:
        """Purchases a second, with `AT_ONCE` fans there at any time; the first third is warm-up."""
        seconds, crowd = self._phases.measure_s, self._crowd("measured", at_once=AT_ONCE)
        try:
            await crowd.until("bought")
        except AssertionError:
            return 0.0
        began_s = time.time()
        await asyncio.sleep(seconds)
        measured = crowd.span(began_s + seconds / 3)
        self._count(crowd.end())
        capacity = measured.bought / max(1, measured.seconds)
        self._print(f"{capacity:.1f} purchases a second with {AT_ONCE} fans at a time: {measured}")
        return capacity

    async def _burst(self, capacity: float) -> None:
        crowd = self._crowd("burst", per_s=OVERLOAD * capacity)
        await crowd.until("answers")
        await asyncio.sleep(self._phases.burst_s)
        span = await asyncio.to_thread(crowd.end)
        self._count(span)
        self._print(f"burst: {span}")
        if span.bad:
            self._found([f"in a burst answers were {NEITHER}: {dict(span.bad)}"])

    async def _hold(self, held: Crowd) -> None:
        samples, began_s, clock_s = Samples(self._fleet), time.monotonic(), time.time()
        await samples.open()
        try:
            while (now_s := time.monotonic() - began_s) < self._phases.hold_s:
                await samples.take(held.span().answers)
                await asyncio.sleep(min(SAMPLE_S, max(0.5, self._phases.hold_s / 20)))
                if int(now_s / MINUTE_S) != int((time.monotonic() - began_s) / MINUTE_S):
                    self._print(f"held for {int(now_s / MINUTE_S) + 1} min: {held.span(time.time() - MINUTE_S)}")
        finally:
            await samples.close()
        span = held.span(clock_s)
        self._print(f"held: {span}")
        self.result.counts["minutes at 80 %"] = round(self._phases.hold_s / MINUTE_S)
        self._found(growth_findings(samples, self._phases.hold_s / 4, span.bought))
        if span.bad:
            self._found([f"at {HELD_SHARE:.0%} of the capacity answers were {NEITHER}: {dict(span.bad)}"])

    async def _overload(self, held: Crowd, capacity: float) -> None:
        """Everybody who came meanwhile goes when it is over, and others come as before: those who were refused would
        come again for as long as their backlog lasts, which at four fifths of the capacity is longer than the overload.
        """
        before = held.span(time.time() - max(5.0, self._phases.hold_s / 3))
        more = self._crowd("more", per_s=(OVERLOAD - HELD_SHARE) * capacity)
        await more.until("answers")
        began_s = time.time()
        over_s = began_s + self._phases.overload_s
        others = self._crowd("others", per_s=HELD_SHARE * capacity, from_s=over_s)
        await asyncio.sleep(self._phases.overload_s)
        among_them = Span.of([*more.seconds(), *(second for second in held.seconds() if second["at_s"] >= began_s)])
        more_span, _ = await asyncio.gather(asyncio.to_thread(more.end), asyncio.to_thread(held.end))
        self._count(more_span)
        await asyncio.sleep(max(0.0, over_s + RECOVERED_WITHIN_S + self._phases.settle_s - time.time()))
        later = others.span(over_s + RECOVERED_WITHIN_S)
        silence_s = max(held.span(began_s, over_s).silence_s, others.span(over_s).silence_s)
        self._count(others.end())
        for name, span in (("before", before), ("overload", among_them), ("later", later)):
            self._print(f"{name}: {span}")
        self._found(wrong := overload_findings(before, among_them, later))
        fault = f"{OVERLOAD:g} times the capacity for {self._phases.overload_s:.0f} s"
        self.result.trials.append(Trial(fault, not wrong, float(silence_s), 0))

    async def _books(self) -> None:
        """Nothing acknowledged is lost: the audit is clean, and the provider has the same charges."""

        async def read() -> list[str]:
            report = await self._fleet.checked(self._event_id)
            self.result.counts["acknowledgements"] = sum(report.read.values())
            broken = [f"the books differ: {row.invariant}" for row in await self._fleet.audit(self._event_id)]
            return broken + [f"the books differ: {violation.sentence}" for violation in report.violations]

        self._found(await what_stays_wrong(read))

    def _crowd(self, name: str, *, per_s: float = 0, at_once: int = 0, from_s: float = 0) -> Crowd:
        plan = Plan(
            self._event_id, self._ports, 24 * 3600, self._budget.seed, str(self._fleet.history.path),
            per_s=per_s, at_once=at_once, from_s=from_s,
        )  # fmt: skip
        return Crowd(plan, self._folder / f"{name}.log")

    def _count(self, span: Span) -> None:
        self.result.counts["requests"] += span.answers
        self.result.counts["refused"] += span.refused

    def _found(self, sentences: list[str]) -> None:
        minutes, seed = self._budget.seconds / 60, self._budget.seed
        again = f"python -m proof --only load --minutes {minutes:.1f} --seed {seed}"
        self.result.found += [f"{sentence[0].upper()}{sentence[1:]}. Again: {again}" for sentence in sentences]

    def _print(self, line: str) -> None:
        print(f"load: {line}", flush=True)


def run(budget: Budget) -> Result:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("ONSALE_")}
    with tempfile.TemporaryDirectory(prefix="onsale-load-") as temporary:
        folder = Path(temporary)
        running = run_in_thread(start_databases(folder / "engines", environ=environ))
        fleet = None
        try:
            for service in SERVICES_WITH_TABLES:
                run_in_thread(upgrade(running.addresses.postgres_url, service))
            fleet = Fleet(folder / "fleet", running.addresses.postgres_url, environ=SETTINGS)
            fleet.start().wait_until_ready()
            load = Load(fleet, folder, budget)
            try:
                return asyncio.run(load.run())
            except Exception:  # noqa: BLE001 - what was found until then is not lost
                load.result.found.append(f"load broke off: {traceback.format_exc()}")
                return load.result
        finally:
            if fleet:
                fleet.end()
            run_in_thread(running.stop())
