"""Reservations as textbooks describe them: verify the pass, lock rows with `FOR UPDATE`, write, commit.

Tuned: asyncpg without an ORM, prepared statements, a pool of the best size, rows locked in key order (no deadlocks), as
few statements as the design allows, a direct response.
"""

import uuid
from typing import Annotated, Any

import orjson
from fastapi import FastAPI, Header, HTTPException, Response
from pydantic import BaseModel, Field

from bench.baselines.service import pass_verifier, service

HOLD_TTL_S = 600
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
    """The textbook's inventory service."""
    verify, app = pass_verifier(), service("reservation_tables")

    @app.post("/events/{event_id}/reservations")
    async def reserve(
        event_id: str, requested: ReservationRequest, authorization: Annotated[str, Header()]
    ) -> Response:
        claims, reservation_id = verify(authorization, event_id), uuid.uuid4()
        async with app.state.pool.acquire() as connection, connection.transaction():
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
