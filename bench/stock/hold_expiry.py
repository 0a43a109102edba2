"""Designs of hold expiry: how late holds end, at what cost, and how many never end after a failure.

Designs of hold expiry, each in a process of its own: create holds, then read how late each one ended.

All holds are created at once, with deadlines evenly spread. All processes share one clock.
"""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from bench.harness import system
from bench.harness.load import quantile
from bench.harness.measurement import CheckFailed, Claim, Effort, Figures, Finding, Testbed, Trial, cpu_s, descendants
from bench.stock.our_stock import TICKETS
from bench.stock.reservations import EVENT
from services.inventory.redis_keys import Keys
from shared.contracts.event_file import GaSection

SECTIONS, SECTION_CAPACITY = 10, 10_000
HOLDS_PER_STATEMENT = 1000


class ExpiryDesign(Protocol):
    """One design. `delays_ms` are those of the ended holds of one run; `tickets_left` can be bought."""

    name: str
    in_valkey: bool

    async def start(self, trial: Trial) -> None: ...
    async def create_holds(self, trial: Trial, run: str, deadlines_ms: list[int]) -> None: ...
    async def delays_ms(self, trial: Trial, run: str) -> list[float]: ...
    async def tickets_left(self, trial: Trial) -> int: ...


class OurExpiry:
    """The inventory process: deadlines in Redis, the decision in PostgreSQL, and a scan behind it."""

    name, in_valkey = "ours, deadlines + scan", True
    INSERT_HOLDS = (
        "INSERT INTO inventory.reservation (event_id, reservation_id, holder, total_minor, currency, status, "
        "reserved_until_ms, fingerprint) SELECT $1, md5($2 || n), $2 || n, 10000, 'EUR', 'pending_payment', ms, $2 "
        "FROM unnest($3::bigint[]) WITH ORDINALITY AS deadline (ms, n)",
        "INSERT INTO inventory.reservation_ga SELECT $1, md5($2 || n), 'GA' || n % $4::int, $5::int, 5000 "
        "FROM unnest($3::bigint[]) WITH ORDINALITY AS deadline (ms, n)",
    )
    UPDATE_COUNTERS = (
        "UPDATE inventory.section s SET seats_remaining = capacity - coalesce((SELECT sum(quantity) "
        "FROM inventory.reservation_ga g JOIN inventory.reservation r USING (event_id, reservation_id) "
        "WHERE g.section_id = s.section_id AND r.status = 'pending_payment'), 0)",
        "UPDATE inventory.event SET redis_epoch = redis_epoch + 1",
    )
    DELAYS = (
        "SELECT extract(epoch FROM l.released_at) * 1000 - r.reserved_until_ms AS ms FROM inventory.release_log l "
        "JOIN inventory.reservation r USING (event_id, reservation_id) WHERE r.fingerprint = $1"
    )

    async def start(self, trial: Trial) -> None:
        ports = await system.serve(trial, ("inventory",))
        sections = [GaSection(section_id=f"GA{n}", name="Floor", kind="ga", capacity=SECTION_CAPACITY, price_minor=5000)
                    for n in range(SECTIONS)]  # fmt: skip
        sales = EVENT.sales.model_copy(update={"grace_s": 0})
        event = EVENT.model_copy(update={"sections": sections, "sales": sales})
        await system.apply_to_inventory(event, ports["inventory"])

    async def create_holds(self, trial: Trial, run: str, deadlines_ms: list[int]) -> None:
        """Writes the holds to the database and raises the epoch; inventory then rebuilds Redis with them."""
        async with trial.connection() as connection, connection.transaction():
            await connection.execute(self.INSERT_HOLDS[0], EVENT.event_id, run, deadlines_ms)
            await connection.execute(self.INSERT_HOLDS[1], EVENT.event_id, run, deadlines_ms, SECTIONS, TICKETS)
            for statement in self.UPDATE_COUNTERS:
                await connection.execute(statement)

    async def delays_ms(self, trial: Trial, run: str) -> list[float]:
        return [float(row["ms"]) for row in await trial.rows(self.DELAYS, run)]

    async def tickets_left(self, trial: Trial) -> int:
        """As Redis counts them, which grants holds."""
        async with trial.redis() as client:
            found = await client.hmget(Keys.of(EVENT.event_id).counts, [f"GA{n}:available" for n in range(SECTIONS)])
            return sum(int(left or 0) for left in found)


class TextbookExpiry:
    """The common part of the two textbook designs on PostgreSQL."""

    name, worker, in_valkey = "", "", False
    INSERT_HOLDS = (
        "INSERT INTO textbook.hold SELECT $1 || n, 'GA' || n % $3::int, $4::int, to_timestamp(ms / 1000.0) "
        "FROM unnest($2::bigint[]) WITH ORDINALITY AS deadline (ms, n)"
    )
    UPDATE_COUNTERS = (
        "UPDATE textbook.section s SET seats_remaining = $1::int - coalesce((SELECT sum(quantity) FROM textbook.hold h "
        "WHERE h.section_id = s.section_id AND ended_at IS NULL), 0)"
    )
    DELAYS = (
        "SELECT extract(epoch FROM ended_at - held_until) * 1000 AS ms FROM textbook.hold "
        "WHERE hold_id LIKE $1 || '%' AND ended_at IS NOT NULL"
    )

    async def start(self, trial: Trial) -> None:
        await trial.serve_textbook("hold_expiry_workers", BENCH_WORKER=self.worker)
        await trial.rows("INSERT INTO textbook.section SELECT 'GA' || n, $1 FROM generate_series(0, $2::int - 1) n "
                         "ON CONFLICT DO NOTHING", SECTION_CAPACITY, SECTIONS)  # fmt: skip

    async def create_holds(self, trial: Trial, run: str, deadlines_ms: list[int]) -> None:
        await trial.rows(self.INSERT_HOLDS, run, deadlines_ms, SECTIONS, TICKETS)
        await trial.rows(self.UPDATE_COUNTERS, SECTION_CAPACITY)

    async def delays_ms(self, trial: Trial, run: str) -> list[float]:
        return [float(row["ms"]) for row in await trial.rows(self.DELAYS, run)]

    async def tickets_left(self, trial: Trial) -> int:
        return await trial.count("SELECT sum(seats_remaining) FROM textbook.section")


class ScanExpiry(TextbookExpiry):
    """A worker that ends all due holds in one statement, four times a second."""

    name, worker = "ledger scan", "scan"


class JobExpiry(TextbookExpiry):
    """A row in a table of jobs for each hold; eight workers run due jobs, one transaction each."""

    name, worker = "delayed job", "job"

    async def create_holds(self, trial: Trial, run: str, deadlines_ms: list[int]) -> None:
        await super().create_holds(trial, run, deadlines_ms)
        await trial.rows("INSERT INTO textbook.job (hold_id, run_at) SELECT hold_id, held_until FROM textbook.hold "
                         "WHERE hold_id LIKE $1 || '%'", run)  # fmt: skip


class TtlKeyExpiry(TextbookExpiry):
    """A key that expires; a worker that listens to keyspace notifications returns the tickets."""

    name, worker, in_valkey = "TTL key + its news", "ttl", True

    async def start(self, trial: Trial) -> None:
        await trial.serve_textbook("hold_expiry_workers", BENCH_WORKER=self.worker)
        async with trial.redis() as client:
            for n in range(SECTIONS):
                await client.set(f"ttl:left:GA{n}", SECTION_CAPACITY, nx=True)

    async def create_holds(self, trial: Trial, run: str, deadlines_ms: list[int]) -> None:
        async with trial.redis() as client:
            for first in range(0, len(deadlines_ms), HOLDS_PER_STATEMENT):
                async with client.pipeline(transaction=False) as many:
                    for n, at_ms in enumerate(deadlines_ms[first : first + HOLDS_PER_STATEMENT], first):
                        section = f"GA{n % SECTIONS}"
                        many.decrby(f"ttl:left:{section}", TICKETS)
                        many.set(f"ttl:hold:{run}-{n}-{at_ms}:{section}:{TICKETS}", 1, pxat=at_ms)
                    await many.execute()

    async def delays_ms(self, trial: Trial, run: str) -> list[float]:
        async with trial.redis(decode_responses=True) as client:
            ended = [line.split() for line in await client.lrange("ttl:ended", 0, -1)]
            return [int(at) - int(hold.rpartition("-")[2]) for hold, at in ended if hold.startswith(f"{run}-")]

    async def tickets_left(self, trial: Trial) -> int:
        async with trial.redis() as client:
            found = await client.mget([f"ttl:left:GA{n}" for n in range(SECTIONS)])
            return sum(int(left or 0) for left in found)


DESIGNS: tuple[type[ExpiryDesign], ...] = (OurExpiry, TtlKeyExpiry, ScanExpiry, JobExpiry)


def deadlines_ms(count: int, *, first_in_s: float, spread_s: float) -> list[int]:
    """`count` deadlines, evenly spread over `spread_s`, the first one `first_in_s` from now."""
    first_ms = (time.time() + first_in_s) * 1000
    return [int(first_ms + n * spread_s * 1000 / count) for n in range(count)]


ROUNDS_MAX, RESTART_AFTER_S, TIMEOUT_S, POLL_S = 2, 0.5, 4.0, 0.1
HEADINGS = ("way", "p50 ms late", "p99 ms late", "µs a hold", "µs a second at rest", "worker killed: p99 ms late",
            "held for ever", "Valkey lost everything: p99 ms late", "held for ever")  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """How many holds end within `spread_s`, the first after `first_in_s`; the idle time before is `rest_s`.

    The holds are written past the services: an idle inventory process sees within four seconds that its stock has
    another epoch.
    """

    holds: int = 2_000
    spread_s: float = 2.0
    first_in_s: float = 6.0
    rest_s: float = 1.0


QUICK = Plan(40, 0.4, 0.8, 0.1)


def endings() -> Finding:
    """The finding, before it is measured."""
    plan = Plan()
    return Finding(
        key="Endings",
        title="ways to end a hold",
        settings=[
            f"{plan.holds:,} holds of {TICKETS} tickets in {SECTIONS} sections end within {plan.spread_s:g} s, evenly "
            "spread. Late: from the deadline (without a grace) until the engine wrote that it has ended.",
            "Ours: the inventory process, default settings: it looks at the deadlines every 250 ms and scans the "
            "ledger behind them every 2 s. It also writes the release log, tells the outbox and shows stock frames, "
            "which the others do not.",
            "The others: one process each. TTL key: listens to `expired` news and gives back. Ledger scan: every "
            "250 ms, all that is due in one statement. Delayed job: a row a hold in a table of jobs, 8 workers, one "
            "transaction a job, looking every 250 ms when idle.",
            "Cost: processor time of worker and engines together, less what they spend at rest, per hold ended.",
            f"Killed: `SIGKILL` for the worker in the middle of it, started again after {RESTART_AFTER_S:g} s. Valkey "
            "lost everything: `FLUSHALL` in the middle of it. Held for ever: not ended "
            f"{TIMEOUT_S:g} s after the last deadline.",
        ],
        find=find,
    )


@dataclass
class ExpiryResult:
    """The results of the runs of one design."""

    late_ms: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    idle_cpu_us: list[float] = field(default_factory=list)
    faults: list[tuple[str, str]] = field(default_factory=list)

    def row(self, name: str) -> tuple[str, ...]:
        faults = [figure for pair in self.faults for figure in pair]
        return (name, f"{quantile(self.late_ms, 0.5):.0f}", f"{self.p99_ms:.0f}", f"{min(self.cpu_us):.0f}",
                f"{min(self.idle_cpu_us):,.0f}", *faults)  # fmt: skip

    @property
    def p99_ms(self) -> float:
        return quantile(self.late_ms, 0.99)


async def find(testbed: Testbed, effort: Effort) -> Figures:
    """Runs the designs alternately; the last round injects faults."""
    plan, rounds = QUICK if effort.quick else Plan(), min(effort.rounds, ROUNDS_MAX)
    found = {kind.name: ExpiryResult() for kind in DESIGNS}
    for number in range(1, rounds + 1):
        for kind in DESIGNS:
            await _run_design(testbed, plan, kind(), found[kind.name], with_faults=number == rounds)
    ours = found[OurExpiry.name]
    if [held for _, held in ours.faults] != ["0", "0"]:
        raise CheckFailed(f"ours holds for ever: {ours.faults}")
    return Figures(HEADINGS, [ended.row(name) for name, ended in found.items()], _claims(found), [
        "with nothing killed, all holds ended and all tickets could be bought again",
    ])  # fmt: skip


def _claims(found: dict[str, ExpiryResult]) -> list[Claim]:
    """Ours compared with all others, also where they are as good or cheaper."""
    ours, others = found[OurExpiry.name], {name: ended for name, ended in found.items() if name != OurExpiry.name}

    def listed(figure: Callable[[ExpiryResult], str]) -> str:
        return ", ".join(f"{name} {figure(ended)}" for name, ended in others.items())

    least_us = min(min(ended.cpu_us) for ended in others.values())
    return [
        Claim("holds ended, p99 late", f"{ours.p99_ms:.0f} ms", listed(lambda ended: f"{ended.p99_ms:.0f} ms"),
              f"{max(ended.p99_ms for ended in others.values()) / ours.p99_ms:.1f} × sooner than the latest"),
        Claim("processor time for ending a hold", f"{min(ours.cpu_us):.0f} µs",
              listed(lambda ended: f"{min(ended.cpu_us):.0f} µs"),
              f"{min(ours.cpu_us) / max(1.0, least_us):.0f} × the least"),
        Claim("holds that never end after the worker was killed", ours.faults[0][1],
              listed(lambda ended: ended.faults[0][1]), "–", "0"),
    ]  # fmt: skip


async def _run_design(
    testbed: Testbed, plan: Plan, design: ExpiryDesign, ended: ExpiryResult, *, with_faults: bool
) -> None:
    """Idle time, then holds without a fault; `with_faults` also with the worker killed and with Valkey emptied."""
    async with testbed.trial() as trial:
        await design.start(trial)
        await asyncio.sleep(plan.rest_s)
        before_s = _cpu_s(trial)
        await asyncio.sleep(plan.rest_s)
        rest = (_cpu_s(trial) - before_s) / plan.rest_s
        deadlines = deadlines_ms(plan.holds, first_in_s=plan.first_in_s, spread_s=plan.spread_s)
        await design.create_holds(trial, "plain", deadlines)
        await _sleep_until(deadlines[0] / 1000)
        began_s, before_s = time.perf_counter(), _cpu_s(trial)
        late_ms = await _until_ended(trial, design, "plain", deadlines)
        spent_s = _cpu_s(trial) - before_s - rest * (time.perf_counter() - began_s)
        if len(late_ms) < plan.holds or await design.tickets_left(trial) != SECTIONS * SECTION_CAPACITY:
            raise CheckFailed(
                f"{design.name}: {len(late_ms)} of {plan.holds} ended, {await design.tickets_left(trial)} left"
            )
        ended.late_ms += late_ms
        ended.cpu_us.append(max(0.0, spent_s) * 1_000_000 / plan.holds)
        ended.idle_cpu_us.append(rest * 1_000_000)
        if with_faults:
            ended.faults.append(await _run_with_fault(trial, plan, design, "killed", _kill_worker))
            ended.faults.append(
                await _run_with_fault(trial, plan, design, "emptied", _flush_redis) if design.in_valkey else ("–", "–")
            )
        await _reset_keyspace_events(trial)


async def _run_with_fault(
    trial: Trial, plan: Plan, design: ExpiryDesign, run: str, fault: Callable[[Trial, ExpiryDesign], Awaitable[None]]
) -> tuple[str, str]:
    """The p99 delay of the holds that ended, and the number of those that never did."""
    deadlines = deadlines_ms(plan.holds, first_in_s=plan.first_in_s, spread_s=plan.spread_s)
    await design.create_holds(trial, run, deadlines)
    await _sleep_until(deadlines[len(deadlines) // 2] / 1000)
    before = await design.delays_ms(trial, run)
    await fault(trial, design)
    late_ms = await _until_ended(trial, design, run, deadlines, known=before if fault is _flush_redis else [])
    return f"{quantile(late_ms, 0.99):,.0f}", f"{plan.holds - len(late_ms):,}"


async def _until_ended(
    trial: Trial, design: ExpiryDesign, run: str, deadlines: list[int], known: list[float] | None = None
) -> list[float]:
    """The delays once all holds have ended, or at the timeout. `known` are those from before Valkey lost them."""
    lost = known if known and not isinstance(design, OurExpiry) else []
    await _sleep_until(deadlines[-1] / 1000)
    while True:
        late_ms = lost + await design.delays_ms(trial, run)
        if len(late_ms) >= len(deadlines) or time.time() > deadlines[-1] / 1000 + TIMEOUT_S:
            return late_ms
        await asyncio.sleep(POLL_S)


async def _kill_worker(trial: Trial, design: ExpiryDesign) -> None:
    """Kills the worker but not its supervisor; then starts it again."""
    for pid in descendants(set(trial.pids.values())) - set(trial.pids.values()):
        os.kill(pid, signal.SIGKILL)
    await asyncio.sleep(RESTART_AFTER_S)
    await design.start(trial)


async def _flush_redis(trial: Trial, _: ExpiryDesign) -> None:
    await trial.flush_redis()


async def _reset_keyspace_events(trial: Trial) -> None:
    """Undoes the setting of the TTL key's worker."""
    async with trial.redis() as client:
        await client.config_set("notify-keyspace-events", "")


def _cpu_s(trial: Trial) -> float:
    return cpu_s(*trial.pids.values(), *trial.testbed.pids.values())


async def _sleep_until(at_s: float) -> None:
    await asyncio.sleep(max(0.0, at_s - time.time()))
