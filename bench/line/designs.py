"""Lines as they are usually built, beside ours: the same engines, the same data, taking turns."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from bench.baselines.line_designs import Design, ListAndHash, PostgresQueue, SortedSet
from bench.harness.measurement import Claim, Effort, Figures, Finding
from bench.harness.pipes import Paced
from bench.harness.stage import Stage
from bench.line.our_design import Ours, OursDurable

DESIGNS = (SortedSet, ListAndHash, PostgresQueue, Ours, OursDurable)
SIZES, QUICK_SIZES = (10_000, 100_000, 1_000_000), (300,)
CONNECTIONS, BATCH, TURN_FANS, QUICK_FANS, POSITIONS = 32, 100, 2_000, 100, 20_000
QUOTED = {
    SortedSet.name: "5 ms, 25,000/s",
    ListAndHash.name: "2 ms, 50,000/s",
    PostgresQueue.name: "50 ms, 2,000/s",
}
HEADINGS = ("waiting", "design", "join/s", "p95 ms", f"join/s, {BATCH} a request", "position/s", "p95 ms", "admit/s",
            "p95 ms", f"admit/s, {BATCH} a request", "bytes a fan", "people quote")  # fmt: skip
VERBS = ("join", "join many", "position", "admit", "admit many")


def designs() -> Finding:
    """The finding, not yet made."""
    return Finding(
        key="Lines",
        title="ways to keep a line",
        settings=[
            f"All designs stand filled on the same engines at once and take turns, verb by verb, with {CONNECTIONS} "
            f"connections; {TURN_FANS:,} fans join and as many are admitted per turn, so the line keeps its length.",
            "One request is one round trip in each design's best form (two for our joins: numbers, then bits). "
            f"Batched: {BATCH} fans in one request.",
            "Sorted set and list + hash keep nothing on disk beyond Valkey's own log. PostgreSQL commits every "
            "request; its position is a difference of numbers by an index, as counting would read the whole line.",
            "Ours: the engine's part alone, by the real scripts, and with its ledger as the queue runs it, in one "
            "process. Both keep signs of life, fences and calls not yet written, which the others have not. "
            "A position asks no engine: the gateway subtracts, in one process; calls on disk go one tick at a time.",
            "Bytes: `MEMORY USAGE` of all keys per waiting fan; for PostgreSQL and on disk, table and indexes.",
            "What people quote is for a line of 10,000, without method.",
        ],
        find=find,
    )


@dataclass
class Standing:
    """One design on the stage, and what its turns came to."""

    design: Design
    bytes_a_fan: float = 0.0
    paced: dict[str, Paced] = field(default_factory=lambda: {verb: Paced() for verb in VERBS})

    async def turn(self, verb: str, fans: int, positions: int) -> None:
        """One turn of one verb."""
        match verb:
            case "join" | "join many":
                paced = await self.design.join(fans, each=1 if verb == "join" else BATCH)
            case "position":
                paced = await self.design.position(positions)
            case _:
                paced = await self.design.admit(fans, each=1 if verb == "admit" else BATCH)
        self.paced[verb].more(paced)


async def find(stage: Stage, effort: Effort) -> Figures:
    """All sizes, all designs."""
    rows, by_size = [], {}
    for size in QUICK_SIZES if effort.quick else SIZES:
        by_size[size] = await _measured(stage, effort, size)
        rows += [_row(size, standing) for standing in by_size[size]]
    size, standings = by_size.popitem()
    return Figures(HEADINGS, rows, _claims(size, {standing.design.name: standing for standing in standings}))


async def _measured(stage: Stage, effort: Effort, size: int) -> list[Standing]:
    """All designs with so many waiting, verb by verb."""
    fans, positions = (QUICK_FANS, QUICK_FANS) if effort.quick else (TURN_FANS, POSITIONS)
    async with stage.turn() as turn, AsyncExitStack() as stack:
        standings = []
        for design in DESIGNS:
            opened: Design = await stack.enter_async_context(design.on(turn, connections=CONNECTIONS))
            await opened.fill(size)
            standings.append(Standing(opened, await opened.bytes_kept() / size))
        for _ in range(effort.rounds):
            for verb in VERBS:
                for standing in standings:
                    await standing.turn(verb, fans, positions)
    return standings


def _row(size: int, standing: Standing) -> tuple[str, ...]:
    join, many, position, admit, admit_many = (standing.paced[verb] for verb in VERBS)
    return (
        f"{size:,}", standing.design.name, _rate(join), f"{join.p95_ms:.2f}", _rate(many), _rate(position),
        f"{position.p95_ms:.4f}" if position.p95_ms < 0.01 else f"{position.p95_ms:.2f}", _rate(admit),
        f"{admit.p95_ms:.2f}", _rate(admit_many), f"{standing.bytes_a_fan:.2f}",
        QUOTED.get(standing.design.name, ""),
    )  # fmt: skip


def _rate(paced: Paced) -> str:
    return f"{paced.per_second:,.0f}"


def _claims(size: int, by_name: dict[str, Standing]) -> list[Claim]:
    """Ours beside each design, at the longest line."""
    ours, durable = by_name[Ours.name], by_name[OursDurable.name]
    compared: Sequence[tuple[str, str, Standing, str]] = (
        ("position", SortedSet.name, ours, "position"),
        ("batched joins in the engine", SortedSet.name, ours, "join many"),
        ("durable joins, batched", PostgresQueue.name, durable, "join many"),
    )
    return [
        Claim(
            f"{what} with {size:,} waiting", f"{_rate(mine.paced[verb])}/s",
            f"{beside} {_rate(by_name[beside].paced[verb])}/s",
            f"{mine.paced[verb].per_second / by_name[beside].paced[verb].per_second:,.1f} ×",
        )
        for what, beside, mine, verb in compared
    ]  # fmt: skip
