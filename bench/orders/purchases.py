"""Fans with held tickets who order: their reservations in the database of either side, and their requests."""

import asyncio
import functools
import hashlib
import time
from collections.abc import Mapping
from typing import Any

import orjson

from bench.harness import system
from bench.harness.load import request
from bench.harness.testbed import Trial
from bench.stock.reservations import PASS_KEYS, SEAL_KEYS
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
