"""Designs of selling stock compared: one hot section and fifty, few contenders and many, and a slower database."""

import gc
import itertools
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import asyncpg

from bench.baselines.service import CONNECTIONS
from bench.baselines.stock_designs import AdvisorySum, ForUpdate, HotCounter, TtlKey, UnitRows
from bench.harness.measurement import CheckFailed, Claim, Effort, Figures, Finding, Testbed, Trial, cpu_s
from bench.stock.our_stock import TICKETS, Design, OurStock, SaleResult, Venue, until
from onsale.local.engines import with_driver
from shared.postgres import migrations
from tests.support.engines.tcp_proxy import with_delay

DESIGNS = (OurStock, ForUpdate, HotCounter, UnitRows, AdvisorySum, TtlKey)
CAPACITY, SECONDS_MAX, WARM_UP_S, SLOWER_MS, PINGS = 120_000, 0.4, 0.1, 2, 50
AS_IT_IS, DISK, NETWORK = "as it is", f"disk {SLOWER_MS} ms slower", f"{SLOWER_MS} ms further away"
DATABASES = (AS_IT_IS, DISK, NETWORK)
HEADINGS = (
    "database",
    "sections",
    "contenders",
    "design",
    "holds/s",
    "p50 ms",
    "p99 ms",
    "engines µs a hold",
    "ours to it",
)


@dataclass(frozen=True)
class Case:
    """The conditions under which all designs sell."""

    database: str
    sections: int
    contenders: int


CASES = (
    Case(AS_IT_IS, 1, 1), Case(AS_IT_IS, 1, 100), Case(AS_IT_IS, 1, 1000), Case(AS_IT_IS, 50, 100),
    Case(DISK, 1, 100), Case(DISK, 50, 100), Case(NETWORK, 1, 100), Case(NETWORK, 50, 100),
)  # fmt: skip
CLAIMED = (CASES[2], CASES[3], CASES[4], CASES[6])


def stock() -> Finding:
    """The finding, before it is measured."""
    return Finding(
        key="Stock",
        title="ways to sell stock",
        settings=[
            f"A hold is {TICKETS} tickets of general admission for a new fan, in a section picked at random; "
            f"{CAPACITY:,} tickets in all, put up anew for every turn. Contenders: so many fans at once, each asks "
            "again when answered. One process and no HTTP; the designs take turns within a case.",
            "FOR UPDATE, counter row, SKIP LOCKED and advisory lock: asyncpg without an ORM, 32 connections, as few "
            "round trips as the design allows (4, 1, 1 and 3), the hold written in the same transaction.",
            "Ours: the service's own gate, group commit and ledger with limits per holder, fingerprint, fence and "
            "outbox, none of which the others have; 3 round trips to the ledger for a batch of up to 256.",
            "The Valkey script keeps a counter and a key that expires. It writes no ledger and loses what it holds; "
            "it shows what giving up durability would buy, and what happens to its stock stands under `Last tickets`.",
            f"Disk {SLOWER_MS} ms slower: PostgreSQL's own `commit_delay`, which waits before every flush of its log, "
            f"locks held. {SLOWER_MS} ms further away: a TCP proxy that keeps what goes to PostgreSQL for so long. "
            "Both are the same for all; Valkey is never slowed.",
            "Engines: processor time of PostgreSQL and Valkey together; this process, which asks, is not in it.",
        ],
        find=find,
    )


@dataclass
class DesignResult:
    """One design and its results, case by case."""

    design: Design
    sold: dict[Case, SaleResult] = field(default_factory=dict)


async def find(testbed: Testbed, effort: Effort) -> Figures:
    """Measures all designs, case by case."""
    results: dict[Case, dict[str, SaleResult]] = {}
    checked = ["tickets answered = tickets kept, never more than there are"]
    async with testbed.trial() as trial:
        await migrations.upgrade(trial.postgres_url, "inventory")
        for database in DATABASES:
            async with database_url(trial, database) as url, opened(url, trial.redis_url, DESIGNS) as designs:
                checked.append(f"{database}: a question to PostgreSQL {await _ping_ms(url, 'SELECT 1'):.2f} ms, "
                               f"a commit {await _ping_ms(url, COMMIT):.2f} ms (median)")  # fmt: skip
                for case in CASES:
                    if case.database == database:
                        results[case] = await _measure(testbed, designs, case, effort)
    rows = [row for case, by_name in results.items() for row in _rows(case, by_name)]
    return Figures(HEADINGS, rows, _claims(results), checked)


@asynccontextmanager
async def database_url(trial: Trial, database: str) -> AsyncIterator[str]:
    """The plain URL of the database, slowed down as `database` says."""
    url, name = with_driver(trial.postgres_url), trial.postgres_url.rsplit("/", 1)[1]
    if database == NETWORK:
        async with with_delay(url, SLOWER_MS) as slower:
            yield slower
        return
    if database == DISK:
        await trial.sql(f"ALTER DATABASE {name} SET commit_delay = {SLOWER_MS * 1000}",
                       f"ALTER DATABASE {name} SET commit_siblings = 0")  # fmt: skip
    yield url
    await trial.sql(f"ALTER DATABASE {name} RESET commit_delay", f"ALTER DATABASE {name} RESET commit_siblings")


@asynccontextmanager
async def opened(postgres_url: str, redis_url: str, kinds: tuple[Any, ...]) -> AsyncIterator[list[Design]]:
    """Opens all designs at once."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(kind.on(postgres_url, redis_url)) for kind in kinds]


COMMIT = "SELECT pg_logical_emit_message(true, 'bench', '')"
_venue_ids = itertools.count(1)


async def _ping_ms(url: str, statement: str) -> float:
    """The median milliseconds of this statement."""
    connection, times_ms = await asyncpg.connect(url), []
    for _ in range(PINGS):
        started_s = time.perf_counter()
        await connection.execute(statement)
        times_ms.append((time.perf_counter() - started_s) * 1000)
    await connection.close()
    return sorted(times_ms)[PINGS // 2]


async def _measure(testbed: Testbed, designs: list[Design], case: Case, effort: Effort) -> dict[str, SaleResult]:
    """Runs the designs alternately; the first run of each only warms up its connections."""
    sold = {design.name: SaleResult() for design in designs}
    for design in designs:
        await sell_once(testbed, design, replace(case, contenders=CONNECTIONS), WARM_UP_S)
    for _ in range(effort.rounds):
        for design in designs:
            sold[design.name].add(await sell_once(testbed, design, case, min(effort.seconds, SECONDS_MAX)))
    return sold


async def sell_once(testbed: Testbed, design: Design, case: Case, seconds: float) -> SaleResult:
    """Sells a new show for `seconds`. Raises `CheckFailed` if a hold was refused, or answered and not stored."""
    show = Venue(f"show{next(_venue_ids)}", case.sections, CAPACITY // case.sections)
    await design.create_stock(show)
    gc.collect()
    before_s = cpu_s(*testbed.pids.values())
    sold = await design.sell(show, until(_reservation_requests(show), seconds), case.contenders)
    sold.database_cpu_s = cpu_s(*testbed.pids.values()) - before_s
    stored = await design.holds_stored(show)
    if sold.refused or stored != sold.held * TICKETS:
        raise CheckFailed(f"{design.name}: {sold.held} holds answered, {sold.refused} refused, {stored} tickets stored")
    return sold


def _reservation_requests(show: Venue) -> Iterator[int]:
    rng = random.Random(show.name)
    while True:
        yield rng.randrange(show.sections)


def _rows(case: Case, by_name: dict[str, SaleResult]) -> list[tuple[str, ...]]:
    ours = by_name[OurStock.name].per_second
    return [
        (case.database, str(case.sections), f"{case.contenders:,}", name, f"{sold.per_second:,.0f}",
         f"{sold.timing.quantile_ms(0.5):.1f}", f"{sold.timing.quantile_ms(0.99):.1f}",
         f"{sold.database_cpu_us:.0f}",
         "" if name == OurStock.name else f"{ours / sold.per_second:.1f} ×")
        for name, sold in by_name.items()
    ]  # fmt: skip


def _claims(results: dict[Case, dict[str, SaleResult]]) -> list[Claim]:
    """Ours compared with the best durable design, where many fans want the same section."""
    claims = []
    for case in CLAIMED:
        by_name = results[case]
        durable = {name: sold for name, sold in by_name.items() if name not in (OurStock.name, TtlKey.name)}
        best = max(durable, key=lambda name: durable[name].per_second)
        ours = by_name[OurStock.name].per_second
        sections = "one section" if case.sections == 1 else f"{case.sections} sections"
        claims.append(Claim(
            f"holds, {case.contenders:,} contenders for {sections}, database {case.database}", f"{ours:,.0f}/s",
            f"best of four, {best}, {durable[best].per_second:,.0f}/s", f"{ours / durable[best].per_second:.1f} ×",
        ))  # fmt: skip
    return [*claims, _load_claim(results[CASES[1]])]


def _load_claim(by_name: dict[str, SaleResult]) -> Claim:
    """Processor time of the databases for a hold: it does not depend on other load of the machine."""
    others = {name: sold.database_cpu_us for name, sold in by_name.items() if name not in (OurStock.name, TtlKey.name)}
    least, ours_us = min(others, key=lambda name: others[name]), by_name[OurStock.name].database_cpu_us
    return Claim(
        f"engines' processor time a hold, {CASES[1].contenders} contenders for one section", f"{ours_us:.0f} µs",
        f"least of four, {least}, {others[least]:.0f} µs", f"{others[least] / ours_us:.1f} × less",
    )  # fmt: skip
