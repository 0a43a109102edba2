"""When more was sold than there is: what the event file says is done, once, and a person is asked when it is a lot.

A decision is a row, and so is everybody who must give their tickets back: whoever stops in the middle, another goes on.

Stock an operator kept aside for the case that more was sold than there is.
"""

import logging
from collections.abc import Iterable
from typing import Any

from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.inventory.catalogue.layout import Layout
from services.inventory.metrics import OVERSELL_WAITING, OVERSOLD
from services.inventory.reconcile.ledger_repair import Inconsistency
from services.inventory.stock.change import note
from shared.postgres.engine import statement
from shared.runtime.logging import data

LOCK_SECTION = text(
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
    section = (await connection.execute(LOCK_SECTION, which)).one_or_none()
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


log = logging.getLogger("onsale.inventory")
EXCESS = statement(__package__, "excess")
LATEST_BUYERS = statement(__package__, "latest_buyers")
KINDS = ("oversold", "sold-twice")
LOCK = text(
    "SELECT capacity FROM inventory.section WHERE event_id = :event_id AND section_id = :section_id "
    "FOR UPDATE SKIP LOCKED"
)
OPEN = text(
    "INSERT INTO inventory.oversell (event_id, section_id, position, excess, percent, policy, status, from_buffer, "
    "on_paper, ended_at) VALUES (:event_id, :section_id, :position, :excess, :percent, :policy, "
    "CAST(:status AS text), :from_buffer, :on_paper, CASE WHEN :status = 'honoured' THEN clock_timestamp() END) "
    "ON CONFLICT (event_id, section_id, position) WHERE status IN ('waiting', 'cancelling') DO NOTHING RETURNING id"
)
ON_PAPER = text(
    "UPDATE inventory.section SET honoured = honoured + :on_paper, version = version + 1 "
    "WHERE event_id = :event_id AND section_id = :section_id"
)
IS_OPEN = text(
    "SELECT status FROM inventory.oversell WHERE event_id = :event_id AND section_id = :section_id "
    "AND position = :position AND status IN ('waiting', 'cancelling')"
)
WAITING = text(
    "SELECT id, section_id, position FROM inventory.oversell WHERE event_id = :event_id AND status = 'waiting' "
    "ORDER BY id FOR UPDATE"
)
NO_LONGER_WAITS = text(
    "DELETE FROM inventory.oversell WHERE event_id = :event_id AND section_id = :section_id "
    "AND position = :position AND status = 'waiting'"
)
DECIDED = text(
    "UPDATE inventory.oversell SET status = CAST(:status AS text), decided_by = :by, reason = :reason, "
    "ended_at = CASE WHEN :status = 'gone' THEN clock_timestamp() END WHERE id = :id"
)
CASES = text("SELECT * FROM inventory.oversell WHERE event_id = :event_id ORDER BY id DESC LIMIT :count_max")
COUNT_WAITING = text("SELECT count(*) FROM inventory.oversell WHERE status = 'waiting'")
SHOWN_MAX = 100


async def apply_policy(db: AsyncEngine, layout: Layout, found: Iterable[Inconsistency]) -> int:
    """What the operator's policy makes of these; how many were decided now. What is decided, or has come right
    meanwhile, is left alone.
    """
    decided = 0
    for wrong in found:
        async with db.begin() as connection:
            decided += await _decide(connection, layout, wrong)
    async with db.connect() as connection:
        OVERSELL_WAITING.set(await connection.scalar(COUNT_WAITING) or 0)
    return decided


async def _decide(connection: AsyncConnection, layout: Layout, wrong: Inconsistency) -> bool:
    """Under the section's lock, so that one of several reconcilers decides, and decides on what is so now. What waits
    may still be honoured, if the operator has turned to that.
    """
    place = {"event_id": layout.event_id, "section_id": wrong.section_id, "position": wrong.position}
    capacity = await connection.scalar(LOCK, place)
    before = await connection.scalar(IS_OPEN, place)
    if capacity is None or before == "cancelling":
        return False
    excess = await _excess(connection, place)
    if excess <= 0:
        return False
    percent = 100 * excess / max(1, capacity)
    status = _status(layout.oversell, wrong, percent)
    if before and status != "honoured":
        return False
    await connection.execute(NO_LONGER_WAITS, place)
    from_buffer = 0
    if status == "honoured":
        from_buffer = await take_from_buffer(connection, layout.event_id, wrong.section_id, excess)
        await connection.execute(ON_PAPER, {**place, "on_paper": excess - from_buffer})
    case = {**place, "excess": excess, "percent": percent, "status": status,
            "policy": layout.oversell["policy"], "from_buffer": from_buffer,
            "on_paper": excess - from_buffer if status == "honoured" else 0}  # fmt: skip
    case["oversell_id"] = (await connection.execute(OPEN, case)).scalar()
    if case["oversell_id"] is None:
        return False
    if status == "cancelling":
        await connection.execute(LATEST_BUYERS, case)
    OVERSOLD.labels(status).inc(excess)
    log.error("oversell.found", extra=data(**{name: case[name] for name in ("event_id", "section_id", "position",
              "excess", "percent", "status")}))  # fmt: skip
    return True


def _status(policy: dict[str, Any], wrong: Inconsistency, percent: float) -> str:
    """Paper seats nobody twice in one seat: that needs a person, as does cancelling a lot."""
    if policy["policy"] == "honour":
        return "honoured" if wrong.kind == "oversold" else "waiting"
    return "waiting" if percent > policy["review_percent"] else "cancelling"


async def _excess(connection: AsyncConnection, place: dict[str, Any]) -> int:
    return int(await connection.scalar(EXCESS, place) or 0)


async def approve(db: AsyncEngine, event_id: str, *, by: str, reason: str) -> list[str]:
    """A person said yes: the latest buyers of everything that waits give their tickets back; whose."""
    chosen: list[str] = []
    async with db.begin() as connection:
        for case in (await connection.execute(WAITING, {"event_id": event_id})).mappings().all():
            place = {"event_id": event_id, "section_id": case["section_id"], "position": case["position"]}
            excess = await _excess(connection, place)
            status = "cancelling" if excess > 0 else "gone"
            await connection.execute(DECIDED, {"id": case["id"], "status": status, "by": by, "reason": reason})
            if excess > 0:
                asked = {**case, "event_id": event_id, "excess": excess, "oversell_id": case["id"]}
                chosen += (await connection.execute(LATEST_BUYERS, asked)).scalars()
    return chosen


async def cases(connection: AsyncConnection, event_id: str) -> list[RowMapping]:
    """The latest decisions, newest first."""
    asked = {"event_id": event_id, "count_max": SHOWN_MAX}
    return list((await connection.execute(CASES, asked)).mappings().all())
