"""What inventory tells: one event per change of a reservation, with all its places in `after`.

`seat.reserved|released|sold` of a reservation travel inside it, not one by one: a basket changes as a whole.
"""

import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.clock import now_ms
from shared.postgres import statement

TELL = statement(__package__, "tell")
SEATS = {"created": "seat.reserved", "expired": "seat.released", "cancelled": "seat.released", "confirmed": "seat.sold"}


class Fact(NamedTuple):
    """`created`, `expired`, `cancelled` or `confirmed`, of which reservation, in its new version."""

    what: str
    reservation_id: str
    version: int
    actor: str
    after: dict[str, Any]


def bodies(event_id: str, facts: Sequence[Fact]) -> list[str]:
    """The facts as the outbox keeps them."""
    at_ms = now_ms()
    return [
        orjson.dumps({
            "id": uuid.uuid4().hex, "type": f"reservation.{fact.what}", "event_id": event_id, "occurred_at_ms": at_ms,
            "actor": fact.actor, "aggregate": fact.reservation_id, "version": fact.version, "before": None,
            "after": {**fact.after, "seats_are": SEATS[fact.what]},
        }).decode()
        for fact in facts
    ]  # fmt: skip


async def tell(connection: AsyncConnection, event_id: str, facts: Sequence[Fact]) -> None:
    """Writes the facts into the outbox, in the caller's transaction."""
    if facts:
        await connection.execute(TELL, {"event_id": event_id, "bodies": bodies(event_id, facts)})
