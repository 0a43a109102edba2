"""The oversell policy: what happens when more was sold than there is.

Each decision is a row, and so is each buyer who loses their tickets, so another process can go on after a crash. The
event file's policy `honour` accepts the overbooking, from a buffer allotment first; otherwise the latest buyers lose
their tickets, after an operator's approval if there are many.
"""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.inventory import tables
from services.inventory.layout.layout import Layout
from services.inventory.metrics import OVERSELL_WAITING, OVERSOLD
from services.inventory.store import drift
from services.inventory.store.drift import Drift, Kind
from shared.audit_log import Actor, of_event
from shared.concurrency.background import wake
from shared.contracts.admin.inventory import (
    OversellApproved,
    OversellCase,
    OversellReturn,
    ReconcileReport,
    UnconfirmedDrift,
)
from shared.postgres.engine import statement
from shared.runtime.logging import get_logger

log = get_logger("onsale.inventory")
LOCK_SECTION = text(
    "SELECT e.version, s.blocked FROM inventory.section s JOIN inventory.event e USING (event_id) "
    "WHERE s.event_id = :event_id AND s.section_id = :section_id FOR UPDATE OF s"
)
BUFFERS = text(
    "SELECT allotment_id, allotted FROM (SELECT a.allotment_id, (SELECT g.allotted FROM inventory.allotment_ga g "
    "WHERE g.event_id = a.event_id AND g.allotment_id = a.allotment_id AND g.section_id = :section_id) AS allotted "
    "FROM inventory.allotment a WHERE a.event_id = :event_id AND a.kind = 'buffer') b "
    "WHERE allotted > 0 ORDER BY allotment_id"
)
REDUCE_BUFFER = text(
    "UPDATE inventory.allotment_ga SET allotted = allotted - :n "
    "WHERE event_id = :event_id AND section_id = :section_id AND allotment_id = :allotment_id"
)
UNBLOCK = text(
    "UPDATE inventory.section SET blocked = blocked - :n, version = version + 1 "
    "WHERE event_id = :event_id AND section_id = :section_id"
)
EXCESS = statement(__package__, "excess")
LATEST_BUYERS = statement(__package__, "choose_latest_buyers")
KINDS: frozenset[Kind] = frozenset({"database-oversold", "database-sold-twice"})
LOCK = text(
    "SELECT capacity FROM inventory.section WHERE event_id = :event_id AND section_id = :section_id "
    "FOR UPDATE SKIP LOCKED"
)
INSERT_CASE = statement(__package__, "insert_oversell")
ACCEPT_OVERBOOKED = text(
    "UPDATE inventory.section SET overbooked_accepted = overbooked_accepted + :overbooked, version = version + 1 "
    "WHERE event_id = :event_id AND section_id = :section_id"
)
OPEN_CASE = text(
    "SELECT status FROM inventory.oversell WHERE event_id = :event_id AND section_id = :section_id "
    "AND position = :position AND status IN ('waiting', 'cancelling')"
)
WAITING_CASES = text(
    "SELECT id, section_id, position FROM inventory.oversell WHERE event_id = :event_id AND status = 'waiting' "
    "ORDER BY id FOR UPDATE"
)
DELETE_WAITING = text(
    "DELETE FROM inventory.oversell WHERE event_id = :event_id AND section_id = :section_id "
    "AND position = :position AND status = 'waiting'"
)
UPDATE_CASE = text(
    "UPDATE inventory.oversell SET status = CAST(:status AS text), decided_by = :by, reason = :reason, "
    "ended_at = CASE WHEN :status = 'gone' THEN clock_timestamp() END WHERE id = :id"
)
CASES = text(
    "SELECT id, event_id, section_id, position, excess, percent, policy, status, from_buffer, "
    "overbooked AS on_paper, found_at, decided_by, reason, ended_at FROM inventory.oversell "
    "WHERE event_id = :event_id ORDER BY id DESC LIMIT :count_max"
)
COUNT_WAITING = text("SELECT count(*) FROM inventory.oversell WHERE status = 'waiting'")
SHOWN_MAX = 100
RETURNS = text(
    "SELECT oversell_id, reservation_id, order_reference, returned_at, refund, refunded_at "
    "FROM inventory.oversell_return WHERE event_id = :event_id ORDER BY oversell_id DESC, reservation_id LIMIT 500"
)


async def apply_policy(db: AsyncEngine, layout: Layout, found: Iterable[Drift]) -> int:
    """Decides about each oversell; how many were decided now. What was decided before, or is no longer oversold, is
    skipped.
    """
    decided = 0
    for oversold in found:
        async with db.begin() as connection:
            decided += await _decide(connection, layout, oversold)
    async with db.connect() as connection:
        OVERSELL_WAITING.set(await connection.scalar(COUNT_WAITING) or 0)
    return decided


async def _decide(connection: AsyncConnection, layout: Layout, oversold: Drift) -> bool:
    """Under the section's lock, so that one process decides, on the current excess. A waiting case may still be
    accepted, if the policy is `honour` now.
    """
    section_id, position = oversold.seat
    place = {"event_id": layout.event_id, "section_id": section_id, "position": position}
    capacity = await connection.scalar(LOCK, place)
    before = await connection.scalar(OPEN_CASE, place)
    if capacity is None or before == "cancelling":
        return False
    excess = await _excess(connection, place)
    percent = 100 * excess / max(1, capacity)
    status = _status(layout.oversell, oversold, percent)
    if excess <= 0 or (before and status != "honoured"):
        return False
    await connection.execute(DELETE_WAITING, place)
    from_buffer = overbooked = 0
    if status == "honoured":
        from_buffer = await use_buffer(connection, layout.event_id, section_id, excess)
        overbooked = excess - from_buffer
        await connection.execute(ACCEPT_OVERBOOKED, {**place, "overbooked": overbooked})
    found = {**place, "excess": excess, "percent": percent, "status": status}
    case = {**found, "policy": layout.oversell["policy"], "from_buffer": from_buffer, "overbooked": overbooked}
    oversell_id = (await connection.execute(INSERT_CASE, case)).scalar()
    if oversell_id is None:
        return False
    if status == "cancelling":
        await connection.execute(LATEST_BUYERS, {**place, "excess": excess, "oversell_id": oversell_id})
    OVERSOLD.labels(status).inc(excess)
    log.error("oversell.found", **found)
    return True


async def use_buffer(connection: AsyncConnection, event_id: str, section_id: str, n: int) -> int:
    """Uses up to `n` GA places of the section's buffer allotments for tickets that were sold already; how many.

    In the caller's transaction, with an audit log entry; nothing goes on sale. The section is locked first, as by every
    writer of a buffer. A seat that was sold twice needs another seat, which an operator must choose.
    """
    which = {"event_id": event_id, "section_id": section_id}
    section = (await connection.execute(LOCK_SECTION, which)).one_or_none()
    taken: dict[str, int] = {}
    for buffer in (await connection.execute(BUFFERS, which)).all():
        some = min(buffer.allotted, n - sum(taken.values()))
        if some > 0:
            await connection.execute(REDUCE_BUFFER, {**which, "allotment_id": buffer.allotment_id, "n": some})
            taken[buffer.allotment_id] = some
    total = sum(taken.values())
    if section is not None and total:
        await connection.execute(UNBLOCK, {**which, "n": total})
        before = {"sections": {section_id: {"blocked": section.blocked}}}
        after = {"sections": {section_id: {"blocked": section.blocked - total}}, "taken": taken}
        await tables.audit_log.write(
            connection, "use buffer", Actor("reconcile", f"{n} places were oversold"), subject=of_event(event_id),
            version=section.version, before=before, after=after,
        )  # fmt: skip
    return total


def _status(policy: dict[str, Any], oversold: Drift, percent: float) -> str:
    """A seat sold twice cannot be accepted and needs an operator, as does cancelling more than `review_percent`."""
    if policy["policy"] == "honour":
        return "honoured" if oversold.kind == "database-oversold" else "waiting"
    return "waiting" if percent > policy["review_percent"] else "cancelling"


async def _excess(connection: AsyncConnection, place: dict[str, Any]) -> int:
    return int(await connection.scalar(EXCESS, place) or 0)


async def approve(db: AsyncEngine, event_id: str, *, by: str, reason: str) -> OversellApproved:
    """Approves every waiting case: the latest buyers lose their tickets. The decision is in the audit log."""
    chosen: list[str] = []
    async with db.begin() as connection:
        cases = (await connection.execute(WAITING_CASES, {"event_id": event_id})).all()
        for case in cases:
            place = {"event_id": event_id, "section_id": case.section_id, "position": case.position}
            excess = await _excess(connection, place)
            status = "cancelling" if excess > 0 else "gone"
            await connection.execute(UPDATE_CASE, {"id": case.id, "status": status, "by": by, "reason": reason})
            if excess > 0:
                values = {**place, "excess": excess, "oversell_id": case.id}
                chosen += (await connection.execute(LATEST_BUYERS, values)).scalars()
        if cases:
            await tables.audit_log.write(
                connection, "approve oversell", Actor(by, reason), subject=of_event(event_id),
                after={"cases": [case.id for case in cases], "cancelled": len(chosen)},
            )  # fmt: skip
    wake("inventory")
    log.warning("oversell.approved", event_id=event_id, by=by, cancelled=len(chosen))
    return OversellApproved(cancelled=chosen)


async def list_cases(connection: AsyncConnection, event_id: str) -> list[RowMapping]:
    """The latest cases, newest first."""
    values = {"event_id": event_id, "count_max": SHOWN_MAX}
    return list((await connection.execute(CASES, values)).mappings().all())


async def reconcile_report(db: AsyncEngine, event_id: str, *, unconfirmed: list[UnconfirmedDrift]) -> ReconcileReport:
    """Drift that this process sees, drift that was recorded, and oversells with their returns."""
    async with db.connect() as connection:
        recorded = await drift.recent_drift(connection, event_id)
        cases = await list_cases(connection, event_id)
        rows = (await connection.execute(RETURNS, {"event_id": event_id})).mappings()
        returns = [OversellReturn.model_validate(dict(row)) for row in rows]
    return ReconcileReport(
        watched=unconfirmed[: drift.SHOWN_MAX],
        found=recorded,
        oversell=[
            OversellCase.model_validate({**case, "returns": [r for r in returns if r.oversell_id == case["id"]]})
            for case in cases
        ],
    )
