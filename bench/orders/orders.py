"""P5: orders accepted over HTTP, durable and once per key, against one transaction per request.

Fans with held tickets who order: their reservations in the database of either side, and their requests.
"""

import asyncio
import base64
import functools
import hashlib
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import orjson

from bench.harness import system
from bench.harness.load import LoadResult, request
from bench.harness.measurement import CheckFailed, Measurement, Side, Target, Trial
from bench.stock.reservations import PASS_KEYS, SEAL_KEYS
from onsale.local.ports import HOST, free_port
from shared.contracts.event_file import EventFile
from shared.routes import Service
from shared.security.tokens import Pass, sign_pass

PRICE_MINOR, TICKETS, SECTIONS = 5000, 2, 4
TOTAL_MINOR = PRICE_MINOR * TICKETS
HELD_MAX = 40_000
COMPARED_AFTER_S = 7.0  # inventory compares Redis with its database five seconds after the rebuild, then once a minute
EVENT = EventFile.model_validate({
    "event_id": "bench", "name": "Measured", "venue": "Here", "currency": "EUR", "starts_at": "2030-01-01T20:00:00Z",
    "sections": [
        {"section_id": f"GA{n}", "name": f"Floor {n}", "kind": "ga", "capacity": 100_000, "price_minor": PRICE_MINOR}
        for n in range(SECTIONS)
    ],
})  # fmt: skip
HOLD = f"""
WITH held AS (
    SELECT md5('bench' || n) AS reservation_id, 'fan-' || n AS holder, 'GA' || n % {SECTIONS} AS section_id
    FROM generate_series(1, {{count}}) n
), reservations AS (
    INSERT INTO inventory.reservation (event_id, reservation_id, holder, total_minor, currency, status,
        reserved_until_ms, fingerprint)
    SELECT 'bench', reservation_id, holder, {TOTAL_MINOR}, 'EUR', 'pending_payment',
        extract(epoch FROM now()) * 1000 + 3600000, 'stock.body'
    FROM held
), places AS (
    INSERT INTO inventory.reservation_ga (event_id, reservation_id, section_id, quantity, unit_price_minor)
    SELECT 'bench', reservation_id, section_id, {TICKETS}, {PRICE_MINOR} FROM held
)
UPDATE inventory.section s SET seats_remaining = seats_remaining - gone.n * {TICKETS}
FROM (SELECT section_id, count(*) AS n FROM held GROUP BY section_id) gone
WHERE s.event_id = 'bench' AND s.section_id = gone.section_id
"""
HOLD_IN_THE_TEXTBOOK = f"""
INSERT INTO textbook.reservation (reservation_id, event_id, holder, section_id, quantity, unit_price_minor, status,
    reserved_until)
SELECT md5('bench' || n), 'bench', 'fan-' || n, 'GA' || n % {SECTIONS}, {TICKETS}, {PRICE_MINOR}, 'pending_payment',
    now() + interval '1 hour'
FROM generate_series(1, {{count}}) n
"""


@functools.cache
def purchases(count: int) -> list[bytes]:
    """One order request of each fan, signed beforehand and once for all rounds."""
    return [purchase(number) for number in range(1, count + 1)]


def purchase(number: int) -> bytes:
    """The request of one fan, with their own pass and idempotency key."""
    now_s, holder = int(time.time()), f"fan-{number}"
    admission = Pass(
        EVENT.event_id, holder, jti=f"1-0-{number}-1", epoch=1, lane=0, join_seq=number, qty_max=6, issued_at_s=now_s,
        expires_at_s=now_s + 3600,
    )  # fmt: skip
    body = {
        "reservation_id": _reservation_id(number), "expected_total_minor": TOTAL_MINOR, "currency": "EUR",
        "customer": {"name": f"Fan {number}", "email": f"{holder}@example.org"},
        "payment": {"provider": "sandbox", "method": "ok"},
    }  # fmt: skip
    proof = f"Bearer {sign_pass(PASS_KEYS, admission, seal=SEAL_KEYS)}"
    return request("POST", "/orders", orjson.dumps(body), authorization=proof, idempotency_key=f"key.{number:020}")


def _reservation_id(number: int) -> str:
    """The id that the statements above give the fan's reservation."""
    return hashlib.md5(f"bench{number}".encode(), usedforsecurity=False).hexdigest()


async def serve_ours(
    trial: Trial, *, held: int, settings: Mapping[str, str], fixed: Mapping[Service, int] | None = None,
    programs: Mapping[Service, str] | None = None,
) -> dict[Service, int]:  # fmt: skip
    """Inventory and orders, a process each, with `held` reservations waiting for payment."""
    await hold_beforehand(trial, held)
    return await serve_held(trial, held=held, settings=settings, fixed=fixed, programs=programs)


async def hold_beforehand(trial: Trial, held: int) -> None:
    """Writes `held` reservations to the database; Redis is left empty and nothing runs."""
    async with trial.servers_within() as before:
        ports = await system.serve(before, ("inventory",))
        await system.apply_to_inventory(EVENT, ports["inventory"])
    await trial.sql(HOLD.format(count=held), "ANALYZE")
    await trial.flush_redis()


async def serve_held(
    trial: Trial, *, held: int, settings: Mapping[str, str], fixed: Mapping[Service, int] | None = None,
    programs: Mapping[Service, str] | None = None,
) -> dict[Service, int]:  # fmt: skip
    """Inventory and orders, once Redis has all holds."""
    ports = await system.serve(trial, ("inventory", "orders"), settings, fixed, programs)

    def are_known(shown: Any) -> bool:
        return sum(section["held_seats"] for section in shown["sections"]) == held * TICKETS

    await system.until_answer(ports["inventory"], f"/events/{EVENT.event_id}/sections", are_known)
    await asyncio.sleep(COMPARED_AFTER_S)
    return ports


async def serve_textbook(trial: Trial, *, held: int, processes: int = 1, **environment: str) -> int:
    """The textbook's orders service, with the same reservations."""
    port = await trial.serve_textbook("textbook_orders", processes=processes, **environment)
    await trial.sql(HOLD_IN_THE_TEXTBOOK.format(count=held), "ANALYZE")
    return port


RUSH = 512
PASS_PUBLIC_KEY = base64.b64encode(next(iter(PASS_KEYS.public().keys.values()))).decode()
ROWS = {
    "orders": "SELECT count(*) FROM {schema}.{order}",
    "keys": "SELECT count(DISTINCT {key}) FROM {schema}.{keys}",
    "lines": "SELECT count(*) FROM {schema}.order_line",
    "attempts": "SELECT count(*) FROM {schema}.{attempt}",
    "begun": "SELECT count(*) FROM {stock}.reservation WHERE status = 'paying'",
}


def orders() -> Measurement:
    """The measurement, before it is run."""
    return _orders("idempotent orders accepted, durable")


def orders_rush() -> Measurement:
    """The same with many more concurrent requests, as when a sale opens."""
    return _orders(f"idempotent orders accepted, durable, {RUSH} asking at once", connections=RUSH)


def _orders(title: str, *, connections: int | None = None) -> Measurement:
    return Measurement(
        key="P5",
        title=title,
        connections=connections,
        unit="orders answered 202 per second",
        at_least=2.5,
        aim=4,
        settings=[
            "Every request is another fan with a pass of their own (EdDSA), an `Idempotency-Key` and a reservation of "
            "two tickets made beforehand; the same requests, in the same order, on both sides. Nobody is charged.",
            "Ours: the orders process and the inventory process, default settings; the worker begins every order "
            "at once and leaves it, so that only the way to the answer is measured. The load begins once inventory "
            "has compared its new gate with the ledger, which it does again once a minute. A request looks its key "
            "up, reads the reservation at inventory, begins its payment there, and writes the order as one row with "
            "its key, line, attempt and journal, that it is open, and its event; answers carry a signed order token.",
            "Textbook: one uvicorn process, FastAPI function endpoint, all in one database; the pass verified by "
            "PyJWT; one transaction with key, reservation (locked and taken in one statement), order, line, attempt "
            "and event; asyncpg without an ORM, 32 connections. No second service, no limits per customer, no worker.",
        ],
        sides=(Side("ours", open_ours), Side("textbook", open_textbook)),
    )


@asynccontextmanager
async def open_ours(trial: Trial) -> AsyncIterator[Target]:
    unreachable = f"http://{HOST}:{free_port()}"
    ports = await serve_ours(
        trial,
        held=HELD_MAX,
        settings={"ONSALE_SANDBOX_URL": unreachable},
        programs={"orders": "bench.orders.accepting"},
    )

    async def check(result: LoadResult) -> list[str]:
        return await compare(
            trial,
            result,
            schema="orders",
            order='"order"',
            keys='"order"',
            key="key_hash",
            attempt="payment_attempt",
            stock="inventory",
        )

    yield Target(ports["orders"], purchases(HELD_MAX), False, check, expected_status=202)


@asynccontextmanager
async def open_textbook(trial: Trial) -> AsyncIterator[Target]:
    port = await serve_textbook(trial, held=HELD_MAX, BENCH_PASS_PUBLIC_KEY=PASS_PUBLIC_KEY)

    async def check(result: LoadResult) -> list[str]:
        return await compare(
            trial, result, schema="textbook", order="orders", keys="idempotency", key="key", attempt="attempt",
            stock="textbook",
        )  # fmt: skip

    yield Target(port, purchases(HELD_MAX), False, check, expected_status=202)


async def compare(trial: Trial, result: LoadResult, **names: str) -> list[str]:
    """Checks that every answered order is on disk with all its rows, and no other order. Raises `CheckFailed`."""
    answered = [orjson.loads(body)["reference"] for body in result.created]
    rows = {name: await trial.count(query.format(**names)) for name, query in ROWS.items()}
    known = await trial.count(
        "SELECT count(DISTINCT reference) FROM {schema}.{order} WHERE reference = ANY($1)".format(**names), answered
    )
    if {len(answered), known, *rows.values()} != {len(answered)}:
        raise CheckFailed(f"{len(answered)} orders answered, {known} of them on disk; rows: {rows}")
    return [f"{len(answered):,} answers = orders, keys, lines, attempts and begun payments on disk", "no order twice"]
