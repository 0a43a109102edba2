"""Usual designs of a line, compared with ours: on the same PostgreSQL and Redis, with the same data, alternately."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from bench.baselines.line_designs import Design, ListAndHash, PostgresQueue, SortedSet
from bench.harness.measurement import Claim, Effort, Figures, Finding
from bench.harness.pipes import Timing
from bench.harness.testbed import Testbed
from bench.line.our_design import OurDurableLine, OurLine
from onsale.server.gc_tuning import short_pauses

DESIGNS = (SortedSet, ListAndHash, PostgresQueue, OurLine, OurDurableLine)
SIZES, QUICK_SIZES = (10_000, 100_000, 1_000_000), (300,)
CONNECTIONS, BATCH, RUN_FANS, QUICK_FANS, POSITIONS = 32, 100, 2_000, 100, 20_000
QUOTED = {
    SortedSet.name: "5 ms, 25,000/s",
    ListAndHash.name: "2 ms, 50,000/s",
    PostgresQueue.name: "50 ms, 2,000/s",
}
HEADINGS = ("waiting", "design", "join/s", "p95 ms", f"join/s, {BATCH} a request", "position/s", "p95 ms", "admit/s",
            "p95 ms", f"admit/s, {BATCH} a request", "bytes a fan", "people quote")  # fmt: skip
OPERATIONS = ("join", "join many", "position", "admit", "admit many")


def designs() -> Finding:
    """The finding, before it is measured."""
    return Finding(
        key="Lines",
        title="ways to keep a line",
        settings=[
            f"All designs stand filled on the same engines at once and take turns, verb by verb, with {CONNECTIONS} "
            f"connections; {RUN_FANS:,} fans join and as many are admitted per turn, so the line keeps its length.",
            "One request is one round trip in each design's best form (two for our joins: numbers, then bits). "
            f"Batched: {BATCH} fans in one request.",
            "Sorted set and list + hash keep nothing on disk beyond Valkey's own log. PostgreSQL commits every "
            "request; its position is a difference of numbers by an index, as counting would read the whole line.",
            "Ours: the engine's part alone, by the real scripts, and with its ledger as the queue runs it, in one "
            "process. Both keep signs of life, fences and calls not yet written, which the others have not. "
            "A position asks no engine: the gateway subtracts, in one process; calls on disk go one tick at a time.",
            "Bytes: `MEMORY USAGE` of all keys per waiting fan; for PostgreSQL and on disk, table and indexes.",
            "Of a batched join of ours on disk the queue's Python takes half of the processor time: it checks each fan "
            "against the room's rules, keys and codes, and makes an answer of each; the rival passes names through. "
            "PostgreSQL takes about a third more than for the rival's table: keys by event, a fence, the event for "
            "other services. The rest is Valkey's numbers and bits.",
            "What people quote is for a line of 10,000, without method.",
        ],
        find=find,
    )


@dataclass
class DesignRun:
    """One open design, and the timing of its runs by operation."""

    design: Design
    bytes_a_fan: float = 0.0
    timing: dict[str, Timing] = field(default_factory=lambda: {operation: Timing() for operation in OPERATIONS})

    async def run(self, operation: str, fans: int, positions: int) -> None:
        """Runs one operation once."""
        match operation:
            case "join" | "join many":
                timing = await self.design.join(fans, each=1 if operation == "join" else BATCH)
            case "position":
                timing = await self.design.position(positions)
            case _:
                timing = await self.design.admit(fans, each=1 if operation == "admit" else BATCH)
        self.timing[operation].add(timing)


async def find(testbed: Testbed, effort: Effort) -> Figures:
    """Measures all designs at all sizes."""
    rows, by_size = [], {}
    for size in QUICK_SIZES if effort.quick else SIZES:
        by_size[size] = await _measure(testbed, effort, size)
        rows += [_row(size, design_run) for design_run in by_size[size]]
    size, runs = by_size.popitem()
    return Figures(HEADINGS, rows, _claims(size, {design_run.design.name: design_run for design_run in runs}))


async def _measure(testbed: Testbed, effort: Effort, size: int) -> list[DesignRun]:
    """All designs with `size` fans waiting, one operation after another."""
    fans, positions = (QUICK_FANS, QUICK_FANS) if effort.quick else (RUN_FANS, POSITIONS)
    async with testbed.trial() as trial, short_pauses(), AsyncExitStack() as stack:
        runs = []
        for design in DESIGNS:
            opened: Design = await stack.enter_async_context(design.on(trial, connections=CONNECTIONS))
            await opened.fill(size)
            runs.append(DesignRun(opened, await opened.bytes_kept() / size))
        for _ in range(effort.rounds):
            for operation in OPERATIONS:
                for design_run in runs:
                    await design_run.run(operation, fans, positions)
    return runs


def _row(size: int, design_run: DesignRun) -> tuple[str, ...]:
    join, many, position, admit, admit_many = (design_run.timing[operation] for operation in OPERATIONS)
    return (
        f"{size:,}", design_run.design.name, _rate(join), f"{join.p95_ms:.2f}", _rate(many), _rate(position),
        f"{position.p95_ms:.4f}" if position.p95_ms < 0.01 else f"{position.p95_ms:.2f}", _rate(admit),
        f"{admit.p95_ms:.2f}", _rate(admit_many), f"{design_run.bytes_a_fan:.2f}",
        QUOTED.get(design_run.design.name, ""),
    )  # fmt: skip


def _rate(timing: Timing) -> str:
    return f"{timing.per_second:,.0f}"


def _claims(size: int, by_name: dict[str, DesignRun]) -> list[Claim]:
    """Ours compared with the best other design for the operation, at the longest line."""
    ours, durable = by_name[OurLine.name], by_name[OurDurableLine.name]
    compared: Sequence[tuple[str, str, DesignRun, str]] = (
        ("position", SortedSet.name, ours, "position"),
        ("batched joins in the engine", SortedSet.name, ours, "join many"),
        ("durable joins, batched", PostgresQueue.name, durable, "join many"),
    )
    return [
        Claim(
            f"{what} with {size:,} waiting", f"{_rate(mine.timing[operation])}/s",
            f"{other} {_rate(by_name[other].timing[operation])}/s",
            f"{mine.timing[operation].per_second / by_name[other].timing[operation].per_second:,.1f} ×",
        )
        for what, other, mine, operation in compared
    ]  # fmt: skip
