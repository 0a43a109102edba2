"""The buffer: places kept aside so that a section that was oversold can still give everybody what they bought."""

from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.inventory.aside import free
from services.inventory.change import LOCK_EVENT, Change, Seat, Spots, Touched
from shared.problems import UnknownEvent

BUFFERS = text(
    "SELECT a.allotment_id, coalesce(g.kept, 0) AS kept FROM inventory.allotment a "
    "LEFT JOIN inventory.allotment_ga g ON g.event_id = a.event_id AND g.allotment_id = a.allotment_id "
    "AND g.section_id = :section_id "
    "WHERE a.event_id = :event_id AND a.kind = 'buffer' AND a.opened_at IS NULL ORDER BY a.allotment_id"
)
SEATS = text(
    "SELECT section_id, position FROM inventory.seat WHERE event_id = :event_id AND section_id = :section_id "
    "AND allotment_id = :allotment_id ORDER BY position LIMIT :count_max"
)


@dataclass(frozen=True, slots=True)
class FromBuffer:
    """What the buffer gave: `quantity` places, and which if they are seats. The gate is told of `touched` by `say`
    once the transaction is committed.
    """

    quantity: int
    seats: list[Seat]
    touched: Touched


async def take_from_buffer(
    connection: AsyncConnection, event_id: str, section_id: str, quantity: int, *, actor: str, reason: str
) -> FromBuffer:
    """Up to so many places of a section out of its buffers, in the caller's transaction, with a line in the audit.

    They are available then, and locked until the transaction ends: whoever called takes them before anybody else can.
    It locks the event and the section, so it comes before any other lock on sections or seats. Raises `UnknownEvent`
    or `UnknownSection`.
    """
    version: int | None = (await connection.execute(LOCK_EVENT, {"event_id": event_id})).scalar()
    if version is None:
        raise UnknownEvent
    change = Change(connection, event_id, version)
    await change.lock([section_id])
    which = {"event_id": event_id, "section_id": section_id}
    taken: dict[str, int] = {}
    seats: list[Seat] = []
    for buffer in (await connection.execute(BUFFERS, which)).all():
        wanted = quantity - sum(taken.values())
        spots = Spots((), {section_id: min(wanted, buffer.kept)} if min(wanted, buffer.kept) > 0 else {})
        if change.section(section_id).kind == "seated":
            values = {**which, "allotment_id": buffer.allotment_id, "count_max": wanted}
            spots = Spots(tuple((row.section_id, row.position) for row in await connection.execute(SEATS, values)))
        await free(change, spots, allotment_id=buffer.allotment_id)
        seats += spots.seats
        taken[buffer.allotment_id] = sum(spots.counts().values())
    if any(taken.values()):
        change.detail |= {"taken": taken}
    await change.write(actor=actor, action="take from buffer", reason=reason)
    return FromBuffer(sum(taken.values()), seats, change.touched)
