"""Domain events of reservations, written to the outbox: one event for all that changed together, each with its places.

`seat.reserved|released|sold` are inside it and not events of their own: a selection changes as a whole, and an event
per fan would cost more than the hold itself.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from shared.contracts.frames import Event
from shared.messaging.outbox import emit_bodies
from shared.postgres.engine import AsyncConnection

EventKind = Literal["created", "expired", "cancelled", "confirmed", "returned", "given-back"]
SEAT_EVENTS: dict[EventKind, str] = {
    "created": "seat.reserved", "expired": "seat.released", "cancelled": "seat.released", "confirmed": "seat.sold",
    "returned": "seat.released", "given-back": "seat.released",
}  # fmt: skip


class ReservationEvent(NamedTuple):
    """A change of one reservation, its new version, and its places in `after`."""

    kind: EventKind
    reservation_id: str
    version: int
    after: dict[str, Any]


def event_body(
    event_id: str, kind: EventKind, events: Sequence[ReservationEvent], *, actor: str
) -> dict[str, Any]:  # fmt: skip
    """One event for changes of one kind, as the outbox has it."""
    changed = [{"reservation_id": e.reservation_id, "version": e.version, **e.after} for e in events]
    after = {"seats_are": SEAT_EVENTS[kind], "reservations": changed}
    event = Event(type=f"reservation.{kind}", event_id=event_id, actor=actor, aggregate="stock")
    return {**event.model_dump(), "after": after}


async def emit(connection: AsyncConnection, event_id: str, events: Sequence[ReservationEvent], *, actor: str) -> None:
    """Writes one event per kind into the outbox, in the caller's transaction."""
    kinds: dict[EventKind, list[ReservationEvent]] = {}
    for event in events:
        kinds.setdefault(event.kind, []).append(event)
    if kinds:
        bodies = [event_body(event_id, kind, some, actor=actor) for kind, some in kinds.items()]
        await emit_bodies(connection, "inventory", bodies)
