"""Measurements: a claim, two sides and the results of their rounds; the ratio compares the medians.

A claim that two sides under load cannot show is a `Finding`: it measures by itself and returns rows of figures.

One round of one side, with the processor time of all its processes and engines; bare uvicorn, to scale budgets.

The testbed: one PostgreSQL and one Valkey with everything forced to disk, and a fresh database for each trial.

Only one side runs at a time. A trial begins with an empty Valkey and a checkpoint, so that no side inherits the other's
unfinished work.
"""

import base64
import gc
import itertools
import math
import os
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import orjson
import redis.asyncio

from bench.harness import load
from bench.harness.load import Load, LoadResult, quantile, request
from onsale.local.engines import Engines, start_databases, with_driver
from onsale.local.ports import HOST, free_port
from onsale.local.process import Child
from shared.routes import SERVICES
from tests.support.wait import wait_until

PROC = Path("/proc")


NS_PER_S = 1_000_000_000


def cpu_s(*roots: int | None) -> float:
    """Seconds spent so far by these processes and their descendants; 0 without any, or where there is no `/proc`."""
    wanted = {root for root in roots if root is not None}
    if not wanted or not PROC.is_dir():
        return 0.0
    return sum(_cpu_ns(pid) for pid in descendants(wanted)) / NS_PER_S


def cpu_s_by(root: int, part_of: Callable[[str], str]) -> Counter[str]:
    """Seconds spent so far by this process and its descendants, by the part that each command line belongs to."""
    spent: Counter[str] = Counter()
    for pid in descendants({root}) if PROC.is_dir() else ():
        spent[part_of(command_line(pid))] += _cpu_ns(pid) / NS_PER_S  # type: ignore[assignment] # seconds have fractions
    return spent


def command_line(pid: int) -> str:
    """The program of a process and its arguments; empty once it has ended."""
    try:
        return (PROC / str(pid) / "cmdline").read_text(errors="replace").replace("\0", " ")
    except OSError:
        return ""


def descendants(roots: set[int]) -> set[int]:
    """The processes and all their descendants."""
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (parent := _parent(entry)) is not None:
            children.setdefault(parent, []).append(int(entry.name))
    found, to_visit = set(roots), list(roots)
    while to_visit:
        below = [pid for pid in children.get(to_visit.pop(), ()) if pid not in found]
        found.update(below)
        to_visit += below
    return found


def _parent(entry: Path) -> int | None:
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None  # it has ended


def _cpu_ns(pid: int) -> int:
    try:
        return sum(int(task.read_text().split()[0]) for task in (PROC / str(pid)).glob("task/*/schedstat"))
    except OSError:
        return 0


READY_S = 30.0
POLL_S = 0.05


@dataclass
class Testbed:
    """The databases, and the folder of logs and locks."""

    __test__ = False  # pytest: this is no test class

    data_dir: Path
    engines: Engines
    pids: dict[str, int] = field(default_factory=dict)
    template: str = "template1"
    _trial_numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    @asynccontextmanager
    async def trial(self) -> AsyncIterator["Trial"]:
        """An empty Valkey and a fresh database, dropped afterwards."""
        name = f"turn_{next(self._trial_numbers)}"
        await self._sql(f"CREATE DATABASE {name} TEMPLATE {self.template}", "CHECKPOINT")
        server, _ = self.engines.postgres_url.rsplit("/", 1)
        try:
            async with AsyncExitStack() as servers:
                trial = Trial(self, f"{server}/{name}", self.engines.redis_url, servers)
                await trial.flush_redis()
                yield trial
        finally:
            await self._sql(f"DROP DATABASE {name} WITH (FORCE)")

    async def settings(self) -> dict[str, str]:
        """How PostgreSQL and Valkey keep data, as they answer; the same for both sides."""
        names = ("server_version", "fsync", "synchronous_commit", "full_page_writes", "wal_sync_method",
                 "shared_buffers", "max_connections")  # fmt: skip
        connection = await asyncpg.connect(with_driver(self.engines.postgres_url))
        found = {f"PostgreSQL {name}": str(await connection.fetchval(f"SHOW {name}")) for name in names}
        await connection.close()
        client = redis.asyncio.Redis.from_url(self.engines.redis_url, decode_responses=True)
        server = await client.info("server")
        found["Valkey version"] = server.get("valkey_version") or f"Redis {server['redis_version']}"
        for name in ("appendonly", "appendfsync"):
            found[f"Valkey {name}"] = (await client.config_get(name))[name]
        await client.aclose()
        return found

    async def _sql(self, *statements: str) -> None:
        connection = await asyncpg.connect(with_driver(self.engines.postgres_url))
        for statement in statements:
            await connection.execute(statement)
        await connection.close()


@dataclass(frozen=True)
class Trial:
    """One run of one side. `postgres_url` names SQLAlchemy's driver; servers started here stop with the trial.
    `environments` are those of the servers.
    """

    testbed: Testbed
    postgres_url: str
    redis_url: str
    _servers: AsyncExitStack
    pids: dict[str, int] = field(default_factory=dict)
    environments: dict[str, Mapping[str, str]] = field(default_factory=dict)

    async def serve(
        self, name: str, command: Sequence[str], port: int, environment: Mapping[str, str], *, ready: str = "/readyz"
    ) -> None:
        """Starts a server in a process and waits until it answers 200 to `ready` on `port`."""
        child = Child.start(
            [sys.executable, "-P", "-m", *command],
            name=name,
            lock_path=self.testbed.data_dir / "engines" / f"{name}.lock",
            log_path=self.testbed.data_dir / "log" / f"{name}.log",
            stop_signal="TERM",
            env={**environment_without_ours(), "PYTHONPATH": str(Path(__file__).parents[2]), **environment},
        )
        self._servers.push_async_callback(child.stop)
        self.pids[name], self.environments[name] = child._supervisor.pid, environment
        await until_ready(child, port, ready)

    @asynccontextmanager
    async def servers_within(self) -> AsyncIterator["Trial"]:
        """The same trial for servers that stop before it ends."""
        async with AsyncExitStack() as servers:
            yield Trial(self.testbed, self.postgres_url, self.redis_url, servers)

    async def serve_textbook(self, module: str, *, processes: int = 1, **environment: str) -> int:
        """Starts uvicorn with a baseline; its port."""
        port = free_port()
        options = f"--workers {processes} --factory --host {HOST} --port {port} --loop uvloop --http httptools".split()
        # the default kills a worker that is busy for 5 s
        options += ["--timeout-worker-healthcheck", str(round(READY_S))]
        options += ["--no-access-log", "--no-server-header", "--log-level", "warning", "--backlog", "4096"]
        engines = {"BENCH_POSTGRES_URL": with_driver(self.postgres_url), "BENCH_REDIS_URL": self.redis_url}
        command = ["uvicorn", f"bench.baselines.{module}:create_app", *options]
        await self.serve(module, command, port, engines | environment)
        return port

    def redis(self, **options: Any) -> redis.asyncio.Redis:
        """A client of this trial's Valkey, to be entered."""
        return redis.asyncio.Redis.from_url(self.redis_url, **options)

    async def flush_redis(self) -> None:
        """Empties Valkey."""
        async with self.redis() as client:
            await client.flushall()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        """A connection of asyncpg to this trial's database."""
        connection = await asyncpg.connect(with_driver(self.postgres_url))
        try:
            yield connection
        finally:
            await connection.close()

    async def sql(self, *statements: str) -> None:
        """Runs statements on this trial's database, one by one."""
        async with self.connection() as connection:
            for statement in statements:
                await connection.execute(statement)

    async def rows(self, query: str, *arguments: object) -> list[Mapping[str, Any]]:
        """Rows from this trial's database."""
        async with self.connection() as connection:
            return [dict(row) for row in await connection.fetch(query, *arguments)]

    async def row(self, query: str) -> Mapping[str, Any]:
        """One row from this trial's database."""
        [row] = await self.rows(query)
        return row

    async def count(self, query: str, *arguments: object) -> int:
        """One number from this trial's database."""
        async with self.connection() as connection:
            return int(await connection.fetchval(query, *arguments) or 0)


def environment_without_ours() -> dict[str, str]:
    """The environment without Onsale's settings: those of a running suite must not change a figure."""
    ours = ("ONSALE_", *(f"{service.upper()}_" for service in SERVICES))
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


async def until_ready(child: Child, port: int, path: str) -> None:
    """Waits until the child answers 200 to `path`. Raises `RuntimeError` with the end of its log if it does not."""
    async with httpx.AsyncClient(trust_env=False) as client:

        async def is_ready() -> bool:
            assert child.returncode is None, f"{child.name} has ended"
            try:
                return (await client.get(f"http://{HOST}:{port}{path}", timeout=5)).status_code == 200
            except httpx.HTTPError:
                return False  # it does not listen yet

        try:
            await wait_until(is_ready, timeout_s=READY_S, interval_s=POLL_S)
        except AssertionError as failed:
            raise RuntimeError(f"{failed}: {child.log_tail()} (more in {child.log_path})") from None


@asynccontextmanager
async def testbed(parent: Path) -> AsyncIterator[Testbed]:
    """The testbed, in a new directory below `parent`, which is removed afterwards."""
    os.makedirs(parent, exist_ok=True)  # noqa: PTH103 - before anything runs in this loop
    with tempfile.TemporaryDirectory(prefix="bench-", dir=parent, ignore_cleanup_errors=True) as folder:
        running = await start_databases(Path(folder), fsync=True, environ=environment_without_ours())
        try:
            pids = {child.name: child._supervisor.pid for child in running.children}
            yield Testbed(Path(folder), running.addresses, pids)
        finally:
            await running.stop()


SAMPLE = orjson.dumps([[["content-type", "application/json"], ["content-length", "13"]], '{"bare":true}'])


US_PER_S = 1_000_000
BARE_PER_CPU_S = 25_000.0  # answers of bare uvicorn per second of processor, where the budgets were set


@dataclass(frozen=True)
class Target:
    """A running side: its port, the requests to send, and how its database is compared with its answers.

    `check` returns the sentences that hold, and raises `CheckFailed` when one does not. `expected_status` is that of
    the answers that count.
    """

    port: int
    requests: Sequence[bytes]
    repeat: bool
    check: Callable[[LoadResult], Awaitable[list[str]]]
    expected_status: int = 201


class CheckFailed(Exception):
    """A side answered something else than its database holds."""


@dataclass(frozen=True)
class Side:
    """One design; `open` starts it in a trial."""

    name: str
    open: Callable[[Trial], AbstractAsyncContextManager[Target]]


@dataclass(frozen=True)
class Effort:
    """Measured seconds of a round, connections, and rounds; `quick` only checks that it works."""

    seconds: float = 8
    connections: int = 128
    rounds: int = 3
    quick: bool = False


@dataclass(frozen=True)
class Claim:
    """One line of the summary: what was measured, our figure, the other figures, their ratio, and the aim."""

    what: str
    ours: str
    beside: str
    ratio: str
    aims: str = ""

    def sentence(self) -> str:
        aims = f" ({self.aims})" if self.aims else ""
        return f"{self.what}: {self.ours}, beside {self.beside}: RATIO {self.ratio}{aims}"


@dataclass(frozen=True)
class Figures:
    """The result of a finding: a table, the claims that follow from it, and the checked sentences."""

    headings: tuple[str, ...]
    rows: list[tuple[str, ...]]
    claims: list[Claim]
    checked: list[str] = field(default_factory=list)


@dataclass
class Finding:
    """A claim that `find` measures; `figures` is set afterwards."""

    key: str
    title: str
    settings: list[str]
    find: Callable[[Testbed, Effort], Awaitable[Figures]]
    figures: Figures | None = None

    @property
    def found(self) -> Figures:
        assert self.figures is not None, "it was measured"
        return self.figures


@dataclass(frozen=True)
class Round:
    """The figures of one side's round. `per_cpu_s`: answers that count per second of processor time, that of all
    processes and engines of this side.
    """

    per_second: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    created: int
    other_statuses: dict[int, int]
    broken: int
    checked: list[str]
    per_cpu_s: float


@dataclass
class Measurement:
    """A claim with two sides, ours first; `rounds` grows as they alternate.

    The ratio compares answers per second of processor time, over all processes and engines of a side: what a core can
    serve, whatever else uses it. `budget_us` is what one answer may cost and should cost where bare uvicorn answers
    `BARE_PER_CPU_S`; `bare_per_cpu_s` is what it answers here. `connections` overrides the command line where their
    number is what is measured.
    """

    key: str
    title: str
    unit: str
    at_least: float
    aim: float
    settings: list[str]
    sides: tuple[Side, Side]
    budget_us: tuple[float, float] | None = None
    connections: int | None = None
    rounds: dict[str, list[Round]] = field(default_factory=dict)
    bare_per_cpu_s: float = BARE_PER_CPU_S

    def per_second(self, side: Side) -> float:
        return statistics.median(round_.per_second for round_ in self.rounds[side.name])

    def cost_us(self, side: Side) -> float:
        """µs of processor of one answer."""
        return US_PER_S / statistics.median(round_.per_cpu_s for round_ in self.rounds[side.name])

    @property
    def ratio(self) -> float:
        ours, theirs = self.sides
        return self.cost_us(theirs) / self.cost_us(ours)

    @property
    def ratios(self) -> list[float]:
        """The ratio of each round; its two sides ran within a minute of each other."""
        ours, theirs = (self.rounds[side.name] for side in self.sides)
        return [mine.per_cpu_s / other.per_cpu_s for mine, other in zip(ours, theirs, strict=True)]

    def claim(self) -> Claim:
        """The measurement in one line."""
        ours, theirs = self.sides
        return Claim(
            f"{self.key} {self.title}",
            f"{self.per_second(ours):,.0f}/s, {self.cost_us(ours):,.0f} µs",
            f"{theirs.name} {self.per_second(theirs):,.0f}/s, {self.cost_us(theirs):,.0f} µs",
            f"{self.ratio:{'.2f' if self.ratio < 1 else '.1f'}} ×",
            f"at least {self.at_least:g}, aim {self.aim:g}",
        )

    def claims(self) -> list[Claim]:
        """The comparison, and the budget if there is one."""
        if self.budget_us is None:
            return [self.claim()]
        ours, _ = self.sides
        return [self.claim(), budget_claim(self.title, self.cost_us(ours), self.budget_us, self.bare_per_cpu_s)]


def verdict(*, met: bool) -> str:
    """Whether a figure is as good as it must be at least."""
    return "met" if met else "missed"


def budget_claim(title: str, cost_us: float, budget_us: tuple[float, float], bare_per_cpu_s: float) -> Claim:
    """What one costs in processor time, all in, scaled to a core on which bare uvicorn answers `BARE_PER_CPU_S`."""
    scaled_us, (most_us, aim_us) = cost_us * bare_per_cpu_s / BARE_PER_CPU_S, budget_us
    return Claim(
        f"{title}: processor time of one, all in",
        f"{cost_us:,.0f} µs",
        f"bare uvicorn {US_PER_S / bare_per_cpu_s:.0f} µs",
        f"{scaled_us:,.0f} µs where that is {US_PER_S / BARE_PER_CPU_S:.0f}",
        f"at most {most_us:,g} µs, aim {aim_us:,g}",
    )


def summarize(result: LoadResult, checked: list[str], *, cpu_s: float = math.inf, wanted: int = 201) -> Round:
    """The round's figures; `cpu_s` is what the side spent on all answers, if that is measured. Raises `CheckFailed`
    when there are no answers to measure.
    """
    if result.ran_out:
        raise CheckFailed("the prepared requests ran out before the time did")
    if not result.latencies_ms:
        raise CheckFailed(
            f"nothing was answered {wanted}: {dict(result.statuses)}, {result.broken} broken, e.g. {result.refused[:1]}"
        )
    p50, p95, p99 = (quantile(result.latencies_ms, share) for share in (0.5, 0.95, 0.99))
    others = Counter(result.statuses)
    del others[wanted]
    return Round(
        result.per_second, p50, p95, p99, created=result.statuses[wanted], other_statuses=dict(others),
        broken=result.broken, checked=checked,
        per_cpu_s=result.statuses[wanted] / cpu_s,
    )  # fmt: skip


async def one_round(testbed: Testbed, side: Side, effort: Effort) -> Round:
    """Starts one side, loads it, compares its database with its answers, stops it. Raises `CheckFailed`."""
    async with testbed.trial() as trial, side.open(trial) as target:
        gc.collect()
        before = cpu_seconds(trial)
        result = await load.run_in_process(
            Load(HOST, target.port, target.requests, effort.connections, effort.seconds, repeat=target.repeat,
                 expected_status=target.expected_status, warm_up_s=min(1.0, effort.seconds))
        )  # fmt: skip
        spent_s = sum((cpu_seconds(trial) - before).values())
        if not spent_s:
            raise CheckFailed("there is no processor time to read: this needs Linux")
        return summarize(result, await target.check(result), wanted=target.expected_status, cpu_s=spent_s)


async def bare_per_cpu_s(testbed: Testbed, effort: Effort) -> float:
    """What bare uvicorn answers per second of processor time on this machine, now."""
    return (await one_round(testbed, Side("bare uvicorn", _open_bare), effort)).per_cpu_s


@asynccontextmanager
async def _open_bare(trial: Trial) -> AsyncIterator[Target]:
    port = await trial.serve_textbook("bare", BENCH_ANSWER=base64.b64encode(SAMPLE).decode())

    async def check(result: LoadResult) -> list[str]:
        return [f"{result.statuses[200]:,} answers"]

    yield Target(port, [request("GET", "/")], True, check, expected_status=200)


def cpu_seconds(trial: Trial) -> Counter[str]:
    """Processor seconds so far, by service and database."""
    spent: Counter[str] = Counter()
    for name, pid in {**trial.pids, **trial.testbed.pids}.items():
        spent[name.partition("-")[0]] += cpu_s(pid)  # type: ignore[assignment] # seconds have fractions
    return spent
