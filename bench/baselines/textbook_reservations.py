"""Reservations as textbooks describe them: verify the pass, lock rows with `FOR UPDATE`, write, commit.

Tuned: asyncpg without an ORM, prepared statements, a pool of the best size, rows locked in key order (no deadlocks), as
few statements as the design allows, a direct response.
"""

import base64
import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import asyncpg
import jwt
import orjson
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from fastapi import FastAPI, Header, HTTPException, Response
from pydantic import BaseModel, Field

from bench.baselines.pool import open_pool, read_sql

HOLD_TTL_S = 600
TABLES = read_sql("reservation_tables")
LOCK_SECTION = """
SELECT seats_remaining, price_minor FROM textbook.section WHERE event_id = $1 AND section_id = $2 FOR UPDATE
"""
TAKE_SECTION = """
UPDATE textbook.section SET seats_remaining = seats_remaining - $3 WHERE event_id = $1 AND section_id = $2
"""
LOCK_SEATS = """
SELECT status, price_minor FROM textbook.seat WHERE event_id = $1 AND seat_id = ANY($2) ORDER BY seat_id FOR UPDATE
"""
TAKE_SEATS = """
UPDATE textbook.seat SET status = 'held', reservation_id = $3 WHERE event_id = $1 AND seat_id = ANY($2)
"""
INSERT = f"""
INSERT INTO textbook.reservation
VALUES ($1, $2, $3, $4, $5, $6, $7, 'pending_payment', now() + interval '{HOLD_TTL_S} s') RETURNING reserved_until
"""


class GaLine(BaseModel):
    """Tickets without a seat."""

    section_id: str
    quantity: int = Field(ge=1, le=6)


class ReservationRequest(BaseModel):
    """Seats by name, or tickets of one general-admission section, or both."""

    seats: list[str] = Field(default=[], max_length=6)
    ga: list[GaLine] = Field(default=[], max_length=1)


def create_app() -> FastAPI:
    """The textbook's inventory service. `BENCH_PASS_PUBLIC_KEY` is the base64 of an Ed25519 public key."""
    postgres_url = os.environ["BENCH_POSTGRES_URL"]
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(os.environ["BENCH_PASS_PUBLIC_KEY"]))
    pool: asyncpg.Pool

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        nonlocal pool
        async with open_pool(postgres_url) as pool:
            await pool.execute(TABLES)
            yield

    app = FastAPI(lifespan=lifespan)

    @app.get("/readyz")
    async def readyz() -> dict[str, bool]:
        return {"ready": True}

    @app.post("/events/{event_id}/reservations")
    async def reserve(
        event_id: str, requested: ReservationRequest, authorization: Annotated[str, Header()]
    ) -> Response:
        try:
            claims = jwt.decode(authorization.removeprefix("Bearer "), key, algorithms=["EdDSA"], audience=event_id)
        except jwt.PyJWTError as refused:
            raise HTTPException(401, "This pass is not valid.") from refused
        reservation_id = uuid.uuid4()
        async with pool.acquire() as connection, connection.transaction():
            total_minor = await _take(connection, event_id, requested, reservation_id)
            ga = requested.ga[0] if requested.ga else None
            owned = (ga.section_id, ga.quantity) if ga else (None, 0)
            values = (reservation_id, event_id, claims["sub"], *owned, requested.seats, total_minor)
            reserved_until = await connection.fetchval(INSERT, *values)
        body = {
            "reservation_id": reservation_id,
            "reserved_until": reserved_until,
            "seats": requested.seats,
            "ga_section": owned[0],
            "ga_quantity": owned[1],
            "total_amount_minor_units": total_minor,
            "status": "pending_payment",
        }
        return Response(orjson.dumps(body), 201, media_type="application/json")

    return app


async def _take(connection: Any, event_id: str, requested: ReservationRequest, reservation_id: uuid.UUID) -> int:
    """Locks, checks and takes the tickets; returns their price."""
    total_minor = 0
    for ga in requested.ga:
        row = await connection.fetchrow(LOCK_SECTION, event_id, ga.section_id)
        if row is None or row["seats_remaining"] < ga.quantity:
            raise HTTPException(409, "Sold out.")
        await connection.execute(TAKE_SECTION, event_id, ga.section_id, ga.quantity)
        total_minor += ga.quantity * row["price_minor"]
    if requested.seats:
        rows = await connection.fetch(LOCK_SEATS, event_id, requested.seats)
        if len(rows) != len(requested.seats) or any(row["status"] != "available" for row in rows):
            raise HTTPException(409, "These seats are taken.")
        await connection.execute(TAKE_SEATS, event_id, requested.seats, reservation_id)
        total_minor += sum(row["price_minor"] for row in rows)
    return total_minor
