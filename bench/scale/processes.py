"""What a second process of the service that does most of the work brings, and what one answer costs each service.

Two cores that server, engines and load generator share are soon full: then a second process brings little, and what
scaling rests on is that an answer costs no more processor time with two than with one. `onsale plan` counts with these.
"""

import dataclasses
import functools
import os
import statistics
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

import orjson

from bench.baselines.quiet_neighbours import EVENT as ARENA
from bench.baselines.quiet_neighbours import line_frame
from bench.harness.cost import Cost, Done, Work, cost, processor_s
from bench.harness.measurement import Claim, Effort, Figures, Finding
from bench.harness.stage import Stage, Turn
from bench.scale import fleets
from bench.streams.crowd import crowd
from bench.streams.listeners import Order
from bench.streams.sides import ours_held
from bench.streams.streams import FRAMES, QUICK_FRAMES, tell_all
from services.notifier.broadcast import frames
from shared.contracts.frames import SectionCounts, StockFrame

LISTENERS, QUICK_LISTENERS, US_PER_S = 15_000, 60, 1_000_000
SERVICES = ("gateway", "queue", "inventory", "orders", "notifier", "PostgreSQL", "Valkey")
EACH = {"rows": "rows", "commits": "commits", "WAL bytes": "wal_bytes", "disk bytes": "disk_bytes",
        "Valkey bytes": "kept_bytes", "log bytes": "log_bytes"}  # fmt: skip
HEADINGS = ("operation", "processes", "per second", "p99 ms", "cores in all", *(f"{name} µs" for name in SERVICES),
            *EACH, "bytes sent", "log behind s")  # fmt: skip
Open = Callable[[Turn, Effort], AbstractAsyncContextManager[Work]]
Prepare = Callable[[Turn, Effort], Awaitable[None]]


async def _nothing(_turn: Turn, _effort: Effort) -> None:
    return None


@dataclass(frozen=True)
class Operation:
    """What is asked, of whom there are one or two, and what must stand `before`. A way: a name, and how to start."""

    name: str
    of: str
    ways: tuple[tuple[str, Open], ...]
    before: Prepare = _nothing


def _with(start: Callable[..., AbstractAsyncContextManager[Work]], **copies: int) -> Open:
    return functools.partial(start, **copies)


OPERATIONS = (
    Operation("join", "gateway", (
        ("1 gateway, 1 queue", _with(fleets.join, gateways=1, queues=1)),
        ("2 gateways, 1 queue", _with(fleets.join, gateways=2, queues=1)),
        ("2 gateways, 2 queues", _with(fleets.join, gateways=2, queues=2)),
    )),
    Operation("status", "gateway", (
        ("1 gateway", _with(fleets.status, gateways=1)), ("2 gateways", _with(fleets.status, gateways=2)),
    )),
    Operation("sign of life", "queue", (
        ("1 queue", _with(fleets.sign, queues=1)), ("2 queues", _with(fleets.sign, queues=2)),
    )),
    Operation("seats", "inventory", (
        ("1 inventory", _with(fleets.seats, inventories=1)), ("2 inventories", _with(fleets.seats, inventories=2)),
    ), fleets.put_up),
    Operation("hold", "inventory", (
        ("1 inventory", _with(fleets.hold, inventories=1)), ("2 inventories", _with(fleets.hold, inventories=2)),
    ), fleets.put_up),
    Operation("order", "orders", (
        ("1 orders", _with(fleets.order, desks=1)), ("2 orders", _with(fleets.order, desks=2)),
    ), fleets.held_beforehand),
)  # fmt: skip


def processes() -> Finding:
    """The finding, not yet made."""
    return Finding(
        key="Processes",
        title="one and two processes of the service that does most",
        settings=[
            "The load generator's connections take turns between two processes' ports, as a balancer would deal them; "
            "with two queues each gateway asks its own. Everything else is one process, and one of each engine.",
            "µs: processor time an answer, by service and engine, less what they spend at rest; processes of a service "
            "together. Cores in all: these times the speed; the rest of the machine went to the load generator and "
            "whatever else ran. Beside other work two processes are given more of a machine than one: read the µs.",
            "Join, hold, status, seats (a page of fifty) as in P1, P4 and P2. Order: from the request to the "
            "confirmation, the sandbox takes 50 ms. Sign of life: one place in reports of "
            f"{fleets.SIGNS:,}, taken by the queue. Frame: one frame for one of {LISTENERS:,} listeners of one or two "
            "notifiers; its speed is listeners by the age of the news at p99.9.",
            "Rows (inserted, updated, deleted), commits, WAL and growth of the database an answer, what the outbox "
            "takes included. Valkey bytes: what its keys grew; log bytes: the event log's. Log behind: seconds after "
            "the last answer until the log had heard of all. Bytes sent: one answer, header fields included; of a "
            "frame, the event.",
        ],
        find=find,
    )


@dataclass
class Way:
    """Rounds of one operation in one way."""

    operation: str
    of: str
    processes: str
    costs: list[Cost] = field(default_factory=list)

    def us(self, name: str) -> float:
        return statistics.median(one.us.get(name, 0.0) for one in self.costs)

    def done(self, name: str) -> float:
        return statistics.median(getattr(one.done, name) for one in self.costs)

    def row(self) -> tuple[str, ...]:
        each = (statistics.median(one.each.get(name, 0.0) for one in self.costs) for name in EACH.values())
        told_s = statistics.median(one.told_s for one in self.costs)
        cores = sum(map(self.us, SERVICES)) * self.done("per_second") / US_PER_S
        return (
            self.operation, self.processes, f"{self.done('per_second'):,.0f}", f"{self.done('p99_ms'):,.0f}",
            f"{cores:.2f}", *(_figure(self.us(name)) for name in SERVICES), *map(_figure, each),
            f"{self.done('sent_bytes'):,.0f}" if self.done("sent_bytes") else "", f"{told_s:.1f}",
        )  # fmt: skip


def _figure(value: float) -> str:
    """Three digits, or nothing where nothing was spent."""
    if value < 0.0005:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


async def find(stage: Stage, effort: Effort) -> Figures:
    """One process and two take turns."""
    began = os.getloadavg()[0]
    ways = {
        (one.name, how): Way(one.name, one.of, how) for one in OPERATIONS for how, _ in one.ways
    } | {("frame", how): Way("frame", "notifier", how) for how in ("1 notifier", "2 notifiers")}  # fmt: skip
    for _ in range(effort.rounds):
        for operation in OPERATIONS:
            for how, start in operation.ways:
                async with stage.turn() as turn:
                    await operation.before(turn, effort)
                    ways[operation.name, how].costs.append(
                        await cost(turn, lambda servers, start=start: start(servers, effort))  # type: ignore[misc]
                    )
        for copies, how in enumerate(("1 notifier", "2 notifiers"), 1):
            async with stage.turn() as turn:
                ways["frame", how].costs.append(await of_a_frame(turn, effort, copies))
    rows, said = [way.row() for way in ways.values()], _checked(list(ways.values()))
    said.append(f"the machine's load was {began:.1f} when this began and {os.getloadavg()[0]:.1f} when it ended")
    return Figures(HEADINGS, [*rows, _section_row()], claims(list(ways.values())), said)


async def of_a_frame(turn: Turn, effort: Effort, copies: int) -> Cost:
    """Everybody listens to one or two notifiers, always in two crowds, and hears a few frames."""
    size, told = (QUICK_LISTENERS, QUICK_FRAMES) if effort.quick else (LISTENERS, FRAMES)
    async with (
        ours_held(turn, "detached", processes=copies) as carrier,
        crowd(halves(carrier.orders(size))) as listeners,
    ):
        await listeners.heard()
        before = processor_s(turn)
        heard = await tell_all(carrier, listeners, size, told)
        after = processor_s(turn)
    delivered = sum(one["heard"] for one in heard)
    last_ms, p99_ms = (max(one["ages_ms"][share] for one in heard) for share in ("0.999", "0.99"))
    us = {name: (after[name] - before[name]) * US_PER_S / delivered for name in ("notifier", "Valkey")}
    done = Done(delivered, size * 1000 / last_ms, p99_ms, len(line_event()))
    return Cost(done, us, checked=[f"{size * told - delivered:,} frames were missed by a listener, or conflated"])


def halves(orders: Sequence[Order]) -> list[Order]:
    """Two crowds, so that listening costs the same however many notifiers there are."""
    if len(orders) > 1:
        return list(orders)
    [all_of_them] = orders
    half = all_of_them.count // 2
    return [
        dataclasses.replace(all_of_them, count=half),
        dataclasses.replace(all_of_them, count=all_of_them.count - half, first=all_of_them.first + half),
    ]


def line_event() -> bytes:
    """A line's event as it goes to every listener."""
    fact = orjson.dumps(frames.line_fact(line_frame(1_000_000, ""), degraded=False))
    return frames.compose([("line", fact)], b"1.1790000000000.1790000000000")


def _section_row() -> tuple[str, ...]:
    """How much longer a frame gets by each section that has changed."""

    def event(count: int) -> int:
        sections = [SectionCounts(section_id=f"S{n}", available=4000, held=100, sold=900, at_ms=1_790_000_000_000)
                    for n in range(count)]  # fmt: skip
        stock = StockFrame(event_id=ARENA, epoch=1, version=1, ready=True, at_ms=1_790_000_000_000, sections=sections)
        names = [section.section_id for section in sections]
        return len(orjson.dumps(frames.sections_body(stock, names, delta=True, degraded=False)))

    return ("section", "in a frame", *[""] * (len(HEADINGS) - 4), f"{event(2) - event(1)}", "")


def claims(ways: Sequence[Way]) -> list[Claim]:
    """For each operation: the speed with two beside one, and what an answer costs the service with two beside one."""
    made: list[Claim] = []
    first: dict[str, Way] = {}
    for way in ways:
        one = first.setdefault(way.operation, way)
        if one is way:
            continue
        speed, other = way.done("per_second"), one.done("per_second")
        made.append(Claim(
            f"{way.operation}, {way.processes}", f"{speed:,.0f}/s, {_figure(way.us(way.of))} µs of {way.of} each",
            f"{one.processes} {other:,.0f}/s, {_figure(one.us(way.of))} µs", f"{speed / other:.2f} ×",
        ))  # fmt: skip
    return made


def _checked(ways: Sequence[Way]) -> list[str]:
    return [f"{way.operation}, {way.processes}: {'; '.join(said)}" for way in ways if (said := way.costs[-1].checked)]
