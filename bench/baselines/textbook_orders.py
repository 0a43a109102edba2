"""Orders as textbooks describe them: one transaction per request with the idempotency key, the order and its rows.

Tuned as the other baselines: asyncpg without an ORM, prepared statements, a pool of the best size, lock and update in
one statement, a direct response. With `BENCH_SANDBOX_URL` the request also charges the payment and waits for it, over
httpx, which is usual, or the client that `BENCH_PROVIDER_CLIENT` names.
"""

import hashlib
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

import aiohttp
import httpx
import orjson
from fastapi import FastAPI, Header, HTTPException, Response
from pydantic import BaseModel, Field

from bench.baselines.service import pass_verifier, service

KEY = """
INSERT INTO textbook.idempotency (holder, key, fingerprint, reference) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING
"""
KNOWN = "SELECT fingerprint, reference FROM textbook.idempotency WHERE holder = $1 AND key = $2"
BEGIN_PAYMENT = """
UPDATE textbook.reservation SET status = 'paying', order_reference = $3
WHERE reservation_id = $1 AND holder = $2 AND status = 'pending_payment' AND reserved_until > now()
RETURNING event_id, section_id, quantity, unit_price_minor, reserved_until
"""
ORDER = """
INSERT INTO textbook.orders (reference, event_id, reservation_id, holder, status, total_minor, currency, customer_name,
    customer_email, expires_at)
VALUES ($1, $2, $3, $4, 'pending', $5, $6, $7, $8, $9)
"""
LINE = "INSERT INTO textbook.order_line VALUES ($1, 1, $2, $3, $4)"
ATTEMPT = "INSERT INTO textbook.attempt VALUES ($1, $2, $3, $4, 'created')"
INSERT_EVENT = "INSERT INTO textbook.outbox (event_id, body) VALUES ($1, $2)"
PAID = "UPDATE textbook.attempt SET status = $2, provider_ref = $3 WHERE provider_key = $1"
MONEY = "INSERT INTO textbook.money_entry VALUES ($1, $2, $3)"
SOLD = "UPDATE textbook.reservation SET status = 'confirmed' WHERE reservation_id = $1 AND order_reference = $2"
CONFIRM = "UPDATE textbook.orders SET status = 'confirmed', confirmed_at = clock_timestamp() WHERE reference = $1"
Post = Callable[[str, dict[str, Any], dict[str, str]], Awaitable[tuple[int, Any]]]


class Customer(BaseModel):
    """Who buys."""

    name: str = Field(max_length=200)
    email: str = Field(max_length=200)


class Payment(BaseModel):
    """How."""

    provider: str
    method: str


class NewOrder(BaseModel):
    """What is ordered."""

    reservation_id: str
    expected_total_minor: int
    currency: str
    customer: Customer
    payment: Payment


def create_app() -> FastAPI:
    """The textbook's shop."""
    verify, sandbox_url = pass_verifier(), os.environ.get("BENCH_SANDBOX_URL")
    post: Post

    @asynccontextmanager
    async def provider_client(_: Any) -> AsyncIterator[None]:
        nonlocal post
        async with PROVIDER_CLIENTS[os.environ.get("BENCH_PROVIDER_CLIENT", "httpx")]() as post:
            yield

    app = service("order_tables", provider_client)

    @app.post("/orders")
    async def order(
        new_order: NewOrder, authorization: Annotated[str, Header()], idempotency_key: Annotated[str, Header()]
    ) -> Response:
        claims, pool = verify(authorization, None), app.state.pool
        reference, is_new = secrets.token_hex(6), False
        async with pool.acquire() as connection, connection.transaction():
            known = await _existing_order(connection, claims["sub"], idempotency_key, reference, new_order)
            if known is None:
                is_new = True
                await _place(connection, claims["sub"], reference, new_order)
        if is_new and sandbox_url:
            charged = await _charge(post, f"{sandbox_url}/charges", reference, new_order)
            async with pool.acquire() as connection, connection.transaction():
                await _confirm(connection, reference, new_order, charged)
        body = {"reference": known or reference, "status": "confirmed" if sandbox_url else "pending"}
        return Response(orjson.dumps(body), 202, media_type="application/json")

    return app


async def _existing_order(connection: Any, holder: str, key: str, reference: str, new_order: NewOrder) -> str | None:
    """The order that was created with this key before; None if the key is new, which reserves it."""
    fingerprint = hashlib.sha256(new_order.model_dump_json().encode()).digest()
    if await connection.execute(KEY, holder, key, fingerprint, reference) == "INSERT 0 1":
        return None
    known = await connection.fetchrow(KNOWN, holder, key)
    if known["fingerprint"] != fingerprint:
        raise HTTPException(422, "This key came with another body.")
    return str(known["reference"])


async def _place(connection: Any, holder: str, reference: str, new_order: NewOrder) -> None:
    held = await connection.fetchrow(BEGIN_PAYMENT, new_order.reservation_id, holder, reference)
    if held is None:
        raise HTTPException(410, "This hold has ended.")
    total_minor = held["quantity"] * held["unit_price_minor"]
    if total_minor != new_order.expected_total_minor:
        raise HTTPException(409, "The price has changed.")
    who, event_id = new_order.customer, held["event_id"]
    await connection.execute(
        ORDER, reference, event_id, new_order.reservation_id, holder, total_minor, new_order.currency, who.name,
        who.email, held["reserved_until"],
    )  # fmt: skip
    await connection.execute(LINE, reference, held["section_id"], held["quantity"], held["unit_price_minor"])
    await connection.execute(ATTEMPT, f"{reference}:1", reference, new_order.payment.method, total_minor)
    created = {"type": "order.created", "reference": reference, "holder": holder, "total_minor": total_minor}
    await connection.execute(INSERT_EVENT, event_id, orjson.dumps(created).decode())


@asynccontextmanager
async def _over_httpx() -> AsyncIterator[Post]:
    async with httpx.AsyncClient() as client:

        async def post(url: str, body: dict[str, Any], headers: dict[str, str]) -> tuple[int, Any]:
            answer = await client.post(url, json=body, headers=headers, timeout=30)
            return answer.status_code, answer.json()

        yield post


@asynccontextmanager
async def _over_aiohttp() -> AsyncIterator[Post]:
    async with aiohttp.ClientSession() as client:

        async def post(url: str, body: dict[str, Any], headers: dict[str, str]) -> tuple[int, Any]:
            async with client.post(url, json=body, headers=headers) as answer:
                return answer.status, await answer.json()

        yield post


PROVIDER_CLIENTS = {"httpx": _over_httpx, "aiohttp": _over_aiohttp}


async def _charge(post: Post, url: str, reference: str, new_order: NewOrder) -> dict[str, Any]:
    body = {
        "reference": reference, "amount_minor": new_order.expected_total_minor, "currency": new_order.currency,
        "method": new_order.payment.method,
    }  # fmt: skip
    status, answer = await post(url, body, {"idempotency-key": f"{reference}:1"})
    if status >= 400:
        raise HTTPException(502, "The payment failed.")
    return dict(answer)


async def _confirm(connection: Any, reference: str, new_order: NewOrder, charged: dict[str, Any]) -> None:
    await connection.execute(PAID, f"{reference}:1", charged["status"], charged["id"])
    await connection.execute(MONEY, charged["id"], reference, charged["amount_minor"])
    await connection.execute(SOLD, new_order.reservation_id, reference)
    await connection.execute(CONFIRM, reference)
    payload = {"type": "order.confirmed", "reference": reference}
    await connection.execute(INSERT_EVENT, "bench", orjson.dumps(payload).decode())
