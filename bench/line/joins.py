"""P1: durable joins through the real gateway and queue, one process each, against the textbook design."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import orjson

from bench.harness import system
from bench.harness.load import LoadResult, request
from bench.harness.measurement import CheckFailed, Measurement, Side, Target
from bench.harness.testbed import Trial
from shared.contracts.event_file import EventFile, GaSection

EVENT = EventFile(
    event_id="bench",
    name="Measured",
    venue="Here",
    currency="EUR",
    starts_at=datetime(2030, 1, 1, tzinfo=UTC),
    sections=[GaSection(section_id="GA", name="Floor", kind="ga", capacity=100_000, price_minor=5000)],
)
PLACES = """
INSERT INTO queue.place (event_id, epoch, lane, join_seq, holder)
SELECT '{event_id}', 1, 0, n, 'fan-' || n FROM generate_series(1, {count}) n
"""
JOIN = request("POST", f"/events/{EVENT.event_id}/queue", origin="http://bench")


def joins() -> Measurement:
    """The measurement, before it is run."""
    return Measurement(
        key="P1",
        title="durable joins",
        unit="joins answered 201 per second",
        at_least=3.5,
        aim=6,
        budget_us=(200, 130),
        settings=[
            "Every request is a new anonymous fan; each answer carries a number, a position and a signed token.",
            "Ours: gateway and queue, one process each, default settings. The room is open and the gatekeeper ticks; "
            "inventory does not run, so nobody is called meanwhile.",
            "Textbook: one uvicorn process, FastAPI function endpoint; per request `INCR`, `ZADD` + `ZRANK` in one "
            "round trip, one committed `INSERT`, HS256 token by PyJWT; asyncpg without an ORM, 32 connections.",
        ],
        sides=(Side("ours", open_ours), Side("textbook", open_textbook)),
    )


@asynccontextmanager
async def open_ours(trial: Trial) -> AsyncIterator[Target]:
    ports = await system.serve(trial, ("queue", "gateway"))
    await system.open_room(EVENT, ports["queue"])

    async def check(result: LoadResult) -> list[str]:
        return await compare(trial, result, "queue.place")

    yield Target(ports["gateway"], [JOIN], True, check)


@asynccontextmanager
async def open_textbook(trial: Trial) -> AsyncIterator[Target]:
    port = await trial.serve_textbook("textbook_joins")

    async def check(result: LoadResult) -> list[str]:
        return await compare(trial, result, "textbook.place")

    yield Target(port, [JOIN], True, check)


async def compare(trial: Trial, result: LoadResult, table: str) -> list[str]:
    """Checks that every answered number is on disk, once. Raises `CheckFailed`."""
    answered = [orjson.loads(body)["join_seq"] for body in result.created]
    rows = await trial.count(f"SELECT count(*) FROM {table} WHERE event_id = $1", EVENT.event_id)
    known = await trial.count(
        f"SELECT count(DISTINCT join_seq) FROM {table} WHERE event_id = $1 AND join_seq = ANY($2)",
        EVENT.event_id,
        answered,
    )
    if not len(answered) == known == rows:
        raise CheckFailed(
            f"{len(answered)} joins answered, {len(set(answered))} numbers, {known} of them and {rows} on disk"
        )
    return [f"{rows:,} answers = rows on disk", "no number twice"]
