"""P4: durable reservations over HTTP with pass check through the real inventory, against `SELECT … FOR UPDATE`."""

import base64
import functools
import itertools
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import orjson

from bench.harness import system
from bench.harness.load import LoadResult, request
from bench.harness.measurement import CheckFailed, Measurement, Side, Target, Trial
from shared.contracts.event_file import EventFile, GaSection, SeatedSection
from shared.security.tokens import Pass, development_keys, sign_pass

ROWS, SEATS_PER_ROW, PRICE_MINOR = 100, 50, 5000
SEATED, GA, GA_CAPACITY = 30, 4, 75_000
TICKETS = 2
FANS_MAX = SEATED * ROWS * SEATS_PER_ROW // TICKETS * 2
EVENT = EventFile(
    event_id="bench",
    name="Measured",
    venue="Here",
    currency="EUR",
    starts_at=datetime(2030, 1, 1, tzinfo=UTC),
    sections=[
        *(
            SeatedSection(section_id=f"S{n}", name=f"Block {n}", kind="seated", rows=ROWS, seats_per_row=SEATS_PER_ROW,
                          price_minor=PRICE_MINOR)
            for n in range(SEATED)
        ),
        *(
            GaSection(section_id=f"GA{n}", name=f"Floor {n}", kind="ga", capacity=GA_CAPACITY, price_minor=PRICE_MINOR)
            for n in range(GA)
        ),
    ],
)  # fmt: skip
PASS_KEYS, SEAL_KEYS = development_keys("pass"), development_keys("service")


def reservations() -> Measurement:
    """The measurement, before it is run."""
    return Measurement(
        key="P4",
        title="durable reservations over HTTP with pass check",
        unit="reservations answered 201 per second",
        at_least=3.5,
        aim=5,
        budget_us=(400, 250),
        settings=[
            f"Every request is another fan with a pass of their own (EdDSA), who takes {TICKETS} tickets: every other "
            f"one two neighbouring seats named by the fan ({SEATED} sections of {ROWS * SEATS_PER_ROW:,} seats, in "
            f"random order, nobody wants another's), the rest general admission ({GA} sections in turn). The same "
            "requests, in the same order, on both sides.",
            "Ours: the inventory process, default settings; limits per holder are checked.",
            "Textbook: one uvicorn process, FastAPI function endpoint; the pass verified by PyJWT, one transaction "
            "with `SELECT … FOR UPDATE`, `UPDATE`, `INSERT`; no limits per holder; asyncpg without an ORM, 32 "
            "connections.",
        ],
        sides=(Side("ours", open_ours), Side("textbook", open_textbook)),
    )


@functools.cache
def reservation_requests(*, of: int = FANS_MAX) -> list[bytes]:
    """The requests of all fans, signed beforehand and once for all rounds."""
    return [
        reservation_request(number, body) for number, body in enumerate(itertools.islice(reservation_bodies(), of), 1)
    ]


def reservation_bodies() -> Iterator[dict[str, Any]]:
    """What the fans ask for: seats and GA alternately."""
    pairs = [
        [f"S{n}-{row}-{number}", f"S{n}-{row}-{number + 1}"]
        for n in range(SEATED)
        for row in range(1, ROWS + 1)
        for number in range(1, SEATS_PER_ROW, 2)
    ]
    random.Random(2026).shuffle(pairs)
    for number, seats in enumerate(pairs):
        yield {"seats": seats}
        yield {"ga": [{"section_id": f"GA{number % GA}", "quantity": TICKETS}]}


def reservation_request(number: int, body: object, event_id: str = EVENT.event_id) -> bytes:
    """The request of one fan, with a pass of their own."""
    now_s = int(time.time())
    admission = Pass(
        event_id, f"fan-{number:08}", jti=f"1-0-{number}-1", epoch=1, lane=0, join_seq=number, qty_max=6,
        issued_at_s=now_s, expires_at_s=now_s + 3600,
    )  # fmt: skip
    path = f"/events/{event_id}/reservations"
    return request(
        "POST", path, orjson.dumps(body), authorization=f"Bearer {sign_pass(PASS_KEYS, admission, seal=SEAL_KEYS)}"
    )


@asynccontextmanager
async def open_ours(trial: Trial) -> AsyncIterator[Target]:
    ports = await system.serve(trial, ("inventory",))
    await system.apply_to_inventory(EVENT, ports["inventory"])

    async def check(result: LoadResult) -> list[str]:
        on_disk = await trial.count("SELECT count(*) FROM inventory.reservation WHERE event_id = $1", EVENT.event_id)
        seats = await trial.count("SELECT count(*) FROM inventory.seat WHERE status = 'held'")
        ga = await trial.count("SELECT sum(capacity - seats_remaining) FROM inventory.section WHERE kind = 'ga'")
        return compare(result, on_disk=on_disk, seats=seats, ga=ga)

    yield Target(ports["inventory"], reservation_requests(), False, check)


@asynccontextmanager
async def open_textbook(trial: Trial) -> AsyncIterator[Target]:
    public = next(iter(PASS_KEYS.public().keys.values()))
    port = await trial.serve_textbook("textbook_reservations", BENCH_PASS_PUBLIC_KEY=base64.b64encode(public).decode())
    await _insert_stock(trial)

    async def check(result: LoadResult) -> list[str]:
        on_disk = await trial.count("SELECT count(*) FROM textbook.reservation WHERE event_id = $1", EVENT.event_id)
        seats = await trial.count("SELECT count(*) FROM textbook.seat WHERE status = 'held'")
        ga = await trial.count("SELECT sum($1 - seats_remaining) FROM textbook.section", GA_CAPACITY)
        return compare(result, on_disk=on_disk, seats=seats, ga=ga)

    yield Target(port, reservation_requests(), False, check)


async def _insert_stock(trial: Trial) -> None:
    """Writes the same stock to the textbook's tables."""
    sections = [(EVENT.event_id, f"GA{n}", PRICE_MINOR, GA_CAPACITY) for n in range(GA)]
    async with trial.connection() as connection:
        await connection.copy_records_to_table("section", schema_name="textbook", records=sections)
        await connection.execute(
            "INSERT INTO textbook.seat SELECT $1, format('S%s-%s-%s', n, r, s), $2, 'available', NULL "
            "FROM generate_series(0, $3 - 1) n, generate_series(1, $4) r, generate_series(1, $5) s",
            EVENT.event_id, PRICE_MINOR, SEATED, ROWS, SEATS_PER_ROW,
        )  # fmt: skip
        await connection.execute("ANALYZE")


def compare(result: LoadResult, *, on_disk: int, seats: int, ga: int) -> list[str]:
    """Checks that every answered reservation is on disk with its tickets, and no ticket has two holders. Raises
    `CheckFailed`.
    """
    answers = [orjson.loads(body) for body in result.created]
    ids = {answer["reservation_id"] for answer in answers}
    seats_answered = [seat for answer in answers for seat in answer["seats"]]
    ga_answered = sum(answer["ga_quantity"] for answer in answers)
    if (
        not len(ids) == len(answers) == on_disk
        or not len(set(seats_answered)) == len(seats_answered) == seats
        or ga_answered != ga
    ):
        raise CheckFailed(
            f"{len(answers)} reservations answered, {on_disk} on disk; {len(seats_answered)} seats answered "
            f"({len(set(seats_answered))} different), {seats} held; {ga_answered} tickets without a seat answered, "
            f"{ga} taken"
        )
    return [f"{on_disk:,} answers = rows on disk", "no seat twice", "tickets answered = tickets taken"]
