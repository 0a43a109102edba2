"""Stock an operator kept aside for the case that more was sold than there is."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.inventory.change import note

LOCK = text(
    "SELECT e.version, s.blocked FROM inventory.section s JOIN inventory.event e USING (event_id) "
    "WHERE s.event_id = :event_id AND s.section_id = :section_id FOR UPDATE OF s"
)
BUFFERS = text(
    "SELECT a.allotment_id, g.kept FROM inventory.allotment a "
    "JOIN inventory.allotment_ga g USING (event_id, allotment_id) WHERE a.event_id = :event_id "
    "AND g.section_id = :section_id AND a.kind = 'buffer' AND g.kept > 0 ORDER BY a.allotment_id"
)
TAKE = text(
    "UPDATE inventory.allotment_ga SET kept = kept - :n "
    "WHERE event_id = :event_id AND section_id = :section_id AND allotment_id = :allotment_id"
)
UNBLOCK = text(
    "UPDATE inventory.section SET blocked = blocked - :n, version = version + 1 "
    "WHERE event_id = :event_id AND section_id = :section_id"
)


async def take_from_buffer(connection: AsyncConnection, event_id: str, section_id: str, n: int) -> int:
    """Unblocks up to `n` places of the section's buffers for tickets sold already, in the caller's transaction and
    with a line in the audit; how many. Nothing is put on sale.

    The section is locked, and everybody who changes a buffer locks it first. Only GA places: a seat that was sold twice
    needs another seat, which a person must choose.
    """
    which = {"event_id": event_id, "section_id": section_id}
    section = (await connection.execute(LOCK, which)).one_or_none()
    taken: dict[str, int] = {}
    for buffer in (await connection.execute(BUFFERS, which)).all():
        some = min(buffer.kept, n - sum(taken.values()))
        if some > 0:
            await connection.execute(TAKE, {**which, "allotment_id": buffer.allotment_id, "n": some})
            taken[buffer.allotment_id] = some
    total = sum(taken.values())
    if section is not None and total:
        await connection.execute(UNBLOCK, {**which, "n": total})
        before = {"sections": {section_id: {"blocked": section.blocked}}}
        after = {"sections": {section_id: {"blocked": section.blocked - total}}, "taken": taken}
        await note(
            connection, event_id, actor="reconcile", action="take from buffer", reason=f"{n} too many were sold",
            version=section.version, before=before, after=after,
        )  # fmt: skip
    return total
