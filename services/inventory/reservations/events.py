"""What inventory tells: one event for all reservations that changed together, each with its places.

`seat.reserved|released|sold` travel inside it, not one by one: a basket changes as a whole, and an event a fan would
cost more than the hold itself.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import orjson

from shared.contracts.events import Event
from shared.postgres.engine import AsyncConnection, statement

What = Literal["created", "expired", "cancelled", "confirmed", "returned", "given-back"]
TELL = statement(__package__, "tell")
SEATS: dict[What, str] = {
    "created": "seat.reserved", "expired": "seat.released", "cancelled": "seat.released", "confirmed": "seat.sold",
    "returned": "seat.released", "given-back": "seat.released",
}  # fmt: skip


class ReservationEvent(NamedTuple):
    """What happened to which reservation, in its new version; `after` names its places."""

    what: What
    reservation_id: str
    version: int
    after: dict[str, Any]


def event(event_id: str, what: What, facts: Sequence[ReservationEvent], *, actor: str) -> str:
    """One event for facts of one kind, as the outbox keeps it."""
    changed = [{"reservation_id": fact.reservation_id, "version": fact.version, **fact.after} for fact in facts]
    after = {"seats_are": SEATS[what], "reservations": changed}
    told = Event(type=f"reservation.{what}", event_id=event_id, actor=actor, aggregate="stock")
    return orjson.dumps({**told.model_dump(), "after": after}).decode()


async def emit(connection: AsyncConnection, event_id: str, facts: Sequence[ReservationEvent], *, actor: str) -> None:
    """Writes the facts into the outbox, in the caller's transaction: one event for each kind."""
    kinds: dict[What, list[ReservationEvent]] = {}
    for fact in facts:
        kinds.setdefault(fact.what, []).append(fact)
    if kinds:
        bodies = [event(event_id, what, some, actor=actor) for what, some in kinds.items()]
        await connection.execute(TELL, {"event_id": event_id, "bodies": bodies})
