"""The gain of a second process of the service that does most of the work, and the cost of an answer for each service.

Each process of that service is limited to a share of a core, so that one is full and a second finds cores to spare. An
answer should cost no more processor time with two than with one. `onsale plan` uses these costs.
"""

import dataclasses
import functools
import os
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field

import orjson

from bench.baselines.stub_services import EVENT as ARENA
from bench.baselines.stub_services import line_frame
from bench.harness.cost import Cost, LoadSummary, Workload, cost
from bench.harness.measurement import Claim, Effort, Figures, Finding, Testbed, Trial, cpu_seconds
from bench.scale import fleets
from bench.scale.core_share import core_share
from bench.streams.listeners import ListenerGroup, connect_listeners
from bench.streams.streams import FRAMES, QUICK_FRAMES, our_notifier, publish_frames
from services.notifier.topics import frames
from shared.contracts.frames import SectionCounts, StockFrame

LISTENERS, QUICK_LISTENERS, US_PER_S = 15_000, 60, 1_000_000
SHARE, AIM = 0.2, "1.7 ×, at most 1.1 × the µs"
SERVICES = ("gateway", "queue", "inventory", "orders", "notifier", "PostgreSQL", "Valkey")
PER_ANSWER = {"rows": "rows", "commits": "commits", "WAL bytes": "wal_bytes", "disk bytes": "disk_bytes",
        "Valkey bytes": "kept_bytes", "log bytes": "log_bytes"}  # fmt: skip
HEADINGS = ("operation", "processes", "per second", "p99 ms", "cores in all", *(f"{name} µs" for name in SERVICES),
            *PER_ANSWER, "bytes sent", "log behind s")  # fmt: skip
Open = Callable[[Trial, Effort], AbstractAsyncContextManager[Workload]]
Prepare = Callable[[Trial, Effort], Awaitable[None]]


async def _nothing(_turn: Trial, _effort: Effort) -> None:
    return None


@dataclass(frozen=True)
class Operation:
    """An operation, the service that has one or two processes, what to prepare, and the variants: name and start."""

    name: str
    service: str
    variants: tuple[tuple[str, Open], ...]
    prepare: Prepare = _nothing


def _variant(start: Callable[..., AbstractAsyncContextManager[Workload]], **copies: int) -> Open:
    return functools.partial(start, **copies)


OPERATIONS = (
    Operation("join", "gateway", (
        ("1 gateway, 1 queue", _variant(fleets.join, gateways=1, queues=1)),
        ("2 gateways, 1 queue", _variant(fleets.join, gateways=2, queues=1)),
        ("2 gateways, 2 queues", _variant(fleets.join, gateways=2, queues=2)),
    )),
    Operation("status", "gateway", (
        ("1 gateway", _variant(fleets.status, gateways=1)), ("2 gateways", _variant(fleets.status, gateways=2)),
    )),
    Operation("sign of life", "queue", (
        ("1 queue", _variant(fleets.heartbeats, queues=1)), ("2 queues", _variant(fleets.heartbeats, queues=2)),
    )),
    Operation("seats", "inventory", (
        ("1 inventory", _variant(fleets.seats, inventories=1)),
        ("2 inventories", _variant(fleets.seats, inventories=2)),
    ), fleets.create_venue),
    Operation("hold", "inventory", (
        ("1 inventory", _variant(fleets.hold, inventories=1)), ("2 inventories", _variant(fleets.hold, inventories=2)),
    ), fleets.create_venue),
    Operation("order", "orders", (
        ("1 orders", _variant(fleets.order, processes=1)), ("2 orders", _variant(fleets.order, processes=2)),
    ), fleets.holds_for_orders),
)  # fmt: skip


def processes() -> Finding:
    """The finding, before it is measured."""
    return Finding(
        key="Processes",
        title="one and two processes of the service that does most",
        settings=[
            "The load generator's connections take turns between two processes' ports, as a balancer would deal them; "
            "with two queues each gateway asks its own. Everything else is one process, and one of each engine.",
            "µs: processor time an answer, by service and engine, less what they spend at rest; processes of a service "
            "together. Cores in all: µs times the speed.",
            f"A control group gives each process of the service that does most at most {SHARE:g} of a core, "
            "so that it is what is full. Frames have no such limit: there the age of the news counts.",
            "Join, hold, status, seats (a page of fifty) as in P1, P4 and P2. Order: from the request to the "
            "confirmation, the sandbox takes 50 ms. Sign of life: one place in reports of "
            f"{fleets.HEARTBEATS:,}, taken by the queue. Frame: one frame for one of {LISTENERS:,} listeners of one or "
            "two notifiers; its speed is listeners by the age of the news at p99.9.",
            "Rows (inserted, updated, deleted), commits, WAL and growth of the database an answer, what the outbox "
            "takes included. Valkey bytes: what its keys grew; log bytes: the event log's. Log behind: seconds after "
            "the last answer until the log had heard of all. Bytes sent: one answer, header fields included; of a "
            "frame, the event.",
        ],
        find=find,
    )


@dataclass
class ProcessCosts:
    """The rounds of one variant of an operation."""

    operation: str
    service: str
    processes: str
    costs: list[Cost] = field(default_factory=list)

    def cpu_us(self, name: str) -> float:
        return statistics.median(one.cpu_us.get(name, 0.0) for one in self.costs)

    @property
    def all_us(self) -> float:
        """Processor time an answer, of all services and engines."""
        return sum(map(self.cpu_us, SERVICES))

    def figure(self, name: str) -> float:
        return statistics.median(getattr(one.load, name) for one in self.costs)

    def row(self) -> tuple[str, ...]:
        each = (statistics.median(one.per_answer.get(name, 0.0) for one in self.costs) for name in PER_ANSWER.values())
        publish_lag_s = statistics.median(one.publish_lag_s for one in self.costs)
        cores = self.all_us * self.figure("per_second") / US_PER_S
        return (
            self.operation, self.processes, f"{self.figure('per_second'):,.0f}", f"{self.figure('p99_ms'):,.0f}",
            f"{cores:.2f}", *(_figure(self.cpu_us(name)) for name in SERVICES), *map(_figure, each),
            f"{self.figure('sent_bytes'):,.0f}" if self.figure("sent_bytes") else "", f"{publish_lag_s:.1f}",
        )  # fmt: skip


def _figure(value: float) -> str:
    """Three digits; empty for zero."""
    if value < 0.0005:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


async def find(testbed: Testbed, effort: Effort) -> Figures:
    """Runs one process and two alternately."""
    load_before = os.getloadavg()[0]
    variants = {
        (one.name, how): ProcessCosts(one.name, one.service, how) for one in OPERATIONS for how, _ in one.variants
    } | {("frame", how): ProcessCosts("frame", "notifier", how) for how in ("1 notifier", "2 notifiers")}  # fmt: skip
    for _ in range(effort.rounds):
        for operation in OPERATIONS:
            for how, start in operation.variants:
                async with testbed.trial() as trial:
                    await operation.prepare(trial, effort)
                    limited = functools.partial(_limited, effort=effort, service=operation.service, start=start)
                    variants[operation.name, how].costs.append(await cost(trial, limited))
        for copies, how in enumerate(("1 notifier", "2 notifiers"), 1):
            async with testbed.trial() as trial:
                variants["frame", how].costs.append(await frame_cost(trial, effort, copies))
    rows, checked = [variant.row() for variant in variants.values()], _checked(list(variants.values()))
    checked.append(
        f"the machine's load was {load_before:.1f} when this began and {os.getloadavg()[0]:.1f} when it ended"
    )
    return Figures(HEADINGS, [*rows, _section_row()], claims(list(variants.values())), checked)


@asynccontextmanager
async def _limited(servers: Trial, *, effort: Effort, service: str, start: Open) -> AsyncIterator[Workload]:
    """The workload, with every process of the service limited to `SHARE` of a core."""
    async with start(servers, effort) as work:
        pids = [pid for name, pid in servers.pids.items() if name.partition("-")[0] == service]
        with core_share(pids, SHARE) as limited:
            yield work if limited else dataclasses.replace(work, check=functools.partial(_unlimited, work.check))


async def _unlimited(check: Callable[[], Awaitable[list[str]]]) -> list[str]:
    return [*await check(), "its processes could not be limited: the speeds are those of a full machine"]


async def frame_cost(trial: Trial, effort: Effort, copies: int) -> Cost:
    """All listeners connect to one or two notifiers, always from two processes, and receive a few frames."""
    size, count = (QUICK_LISTENERS, QUICK_FRAMES) if effort.quick else (LISTENERS, FRAMES)
    async with (
        our_notifier(trial, "detached", processes=copies) as server,
        connect_listeners(halves(server.groups(size))) as listeners,
    ):
        await listeners.collect()
        before = cpu_seconds(trial)
        result = await publish_frames(server, listeners, size, count)
        after = cpu_seconds(trial)
    delivered = sum(one["received"] for one in result)
    last_ms, p99_ms = (max(one["ages_ms"][share] for one in result) for share in ("0.999", "0.99"))
    us = {name: (after[name] - before[name]) * US_PER_S / delivered for name in ("notifier", "Valkey")}
    done = LoadSummary(delivered, size * 1000 / last_ms, p99_ms, len(line_event()))
    return Cost(done, us, checked=[f"{size * count - delivered:,} frames were missed by a listener, or conflated"])


def halves(groups: Sequence[ListenerGroup]) -> list[ListenerGroup]:
    """Two groups, so that listening costs the same for one notifier and two."""
    if len(groups) > 1:
        return list(groups)
    [whole] = groups
    half = whole.count // 2
    return [
        dataclasses.replace(whole, count=half),
        dataclasses.replace(whole, count=whole.count - half, first=whole.first + half),
    ]


def line_event() -> bytes:
    """The line's event as every listener receives it."""
    fact = orjson.dumps(frames.line_body(line_frame(1_000_000, ""), degraded=False))
    return frames.encode_events([("line", fact)], b"1.1790000000000.1790000000000")


def _section_row() -> tuple[str, ...]:
    """The bytes that each changed section adds to a frame."""

    def event(count: int) -> int:
        sections = [SectionCounts(section_id=f"S{n}", available=4000, held=100, sold=900, at_ms=1_790_000_000_000)
                    for n in range(count)]  # fmt: skip
        stock = StockFrame(event_id=ARENA, epoch=1, version=1, ready=True, at_ms=1_790_000_000_000, sections=sections)
        names = [section.section_id for section in sections]
        return len(orjson.dumps(frames.sections_body(stock, names, delta=True, degraded=False)))

    return ("section", "in a frame", *[""] * (len(HEADINGS) - 4), f"{event(2) - event(1)}", "")


def claims(variants: Sequence[ProcessCosts]) -> list[Claim]:
    """For each operation: the rate and the service's cost of an answer, with two processes and with one."""
    found: list[Claim] = []
    first: dict[str, ProcessCosts] = {}
    for variant in variants:
        one = first.setdefault(variant.operation, variant)
        if one is variant:
            continue
        speed, other = variant.figure("per_second"), one.figure("per_second")
        ours, theirs = (
            f"{_figure(which.cpu_us(which.service))} µs of {which.service}, {_figure(which.all_us)} in all"
            for which in (variant, one)
        )
        aims = AIM if variant.operation == "order" else ""
        found.append(Claim(
            f"{variant.operation}, {variant.processes}", f"{speed:,.0f}/s, {ours}",
            f"{one.processes} {other:,.0f}/s, {theirs}", f"{speed / other:.2f} ×", aims,
        ))  # fmt: skip
    return found


def _checked(variants: Sequence[ProcessCosts]) -> list[str]:
    return [
        f"{variant.operation}, {variant.processes}: {'; '.join(checked)}"
        for variant in variants
        if (checked := variant.costs[-1].checked)
    ]
