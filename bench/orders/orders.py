"""P5: orders accepted over HTTP, durable and once per key, against one transaction per request."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson

from bench.harness.load import LoadResult
from bench.harness.measurement import CheckFailed, Measurement, Side, Target
from bench.harness.testbed import Trial
from bench.orders.purchases import HELD_MAX, purchases, serve_ours, serve_textbook
from bench.stock.reservations import PASS_KEYS
from onsale.local.ports import HOST, free_port

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
