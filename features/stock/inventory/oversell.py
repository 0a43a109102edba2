"""The oversell policy: what happens when more was sold than there is.

Each decision is a row, and so is each buyer who loses their tickets, so another process can go on after a crash. The
event file's policy `honour` accepts the overbooking, from a buffer allotment first; otherwise the latest buyers lose
their tickets, after an operator's approval if there are many. Their stock is returned, then their refund requested;
both are idempotent, so a row is closed only when orders has answered, and until then the next run repeats it.
"""

from collections.abc import Set
from typing import Any

from fastapi import APIRouter
from prometheus_client import Counter, Gauge
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from features.stock.schemas import (
    OversellApproval,
    OversellApproved,
    OversellCase,
    OversellReturn,
    ReconcileReport,
    RecordedDrift,
    UnconfirmedDrift,
)
from services.inventory import tables
from services.inventory.layout.layout import Layout
from services.inventory.state import State, StateDep
from services.inventory.store.drift import Drift
from services.inventory.store.repair import Place, accept_overbooked, count_excess, lock_capacity
from shared.audit_log import Actor, of_event
from shared.concurrency.background import Quiet, wake
from shared.contracts.inventory import PaymentStep
from shared.contracts.orders import PaymentRef
from shared.errors.problems import Problem
from shared.postgres.engine import statement
from shared.runtime.logging import get_logger
from shared.runtime.metrics import with_series
from shared.security.auth import AnAdmin, Viewer, control
from shared.web.request import EventIdPath

log = get_logger("onsale.inventory")
router = APIRouter(prefix="/admin/inventory/events/{event_id}", tags=["admin"])
OVERSOLD = with_series(
    Counter("inventory_oversell_total", "Places sold beyond the capacity, by decision.", ["status"]),
    status=("honoured", "waiting", "cancelling"),
)
OVERSELL_WAITING = Gauge(
    "inventory_oversell_waiting", "Oversells that wait for an operator's decision, as this process sees it."
)
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
LATEST_BUYERS = statement(__package__, "choose_latest_buyers")
INSERT_CASE = statement(__package__, "insert_oversell")
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
RECENT_DRIFT = text(
    "SELECT item AS what, actual AS seen, expected AS should_be, since, action AS done, acted_at AS done_at "
    "FROM inventory.drift WHERE event_id = :event_id ORDER BY id DESC LIMIT :count_max"
)
DRIFT_MAX, CASES_MAX = 200, 100
COUNT_WAITING = text("SELECT count(*) FROM inventory.oversell WHERE status = 'waiting'")
RETURNS = text(
    "SELECT oversell_id, reservation_id, order_reference, returned_at, refund, refunded_at "
    "FROM inventory.oversell_return WHERE event_id = :event_id ORDER BY oversell_id DESC, reservation_id LIMIT 500"
)
BATCH_MAX = 50
REASON = ACTOR = "oversell"
DUE = text(
    "SELECT event_id, reservation_id, order_reference, returned_at FROM inventory.oversell_return "
    "WHERE refunded_at IS NULL ORDER BY event_id, oversell_id, reservation_id LIMIT :count_max"
)
MARK_RETURNED = text(
    "UPDATE inventory.oversell_return r SET returned_at = clock_timestamp() "
    "FROM unnest(CAST(:event_ids AS text[]), CAST(:ids AS text[])) AS returned (event_id, reservation_id) "
    "WHERE r.event_id = returned.event_id AND r.reservation_id = returned.reservation_id AND r.returned_at IS NULL"
)
MARK_REFUNDED = statement(__package__, "mark_refunded")
CLOSE_CASES = text(
    "UPDATE inventory.oversell o SET status = 'cancelled', ended_at = clock_timestamp() WHERE o.status = 'cancelling' "
    "AND NOT EXISTS (SELECT 1 FROM inventory.oversell_return r WHERE r.oversell_id = o.id AND r.refunded_at IS NULL)"
)


async def apply_policy(db: AsyncEngine, layout: Layout, found: Set[Drift]) -> Set[Drift]:
    """Decides about each oversell; all of them are cases now, or need none. What was decided before, or is no longer
    oversold, is skipped.
    """
    for oversold in found:
        async with db.begin() as connection:
            await _decide(connection, layout, oversold)
    async with db.connect() as connection:
        OVERSELL_WAITING.set(await connection.scalar(COUNT_WAITING) or 0)
    return found


async def _decide(connection: AsyncConnection, layout: Layout, oversold: Drift) -> None:
    """Under the section's lock, so that one process decides, on the current excess. A waiting case may still be
    accepted, if the policy is `honour` now.
    """
    section_id, position = oversold.seat
    place: Place = {"event_id": layout.event_id, "section_id": section_id, "position": position}
    capacity = await lock_capacity(connection, place)
    before = await connection.scalar(OPEN_CASE, place)
    if capacity is None or before == "cancelling":
        return
    excess = await count_excess(connection, place)
    percent = 100 * excess / max(1, capacity)
    status = _status(layout.oversell, oversold, percent)
    if excess <= 0 or (before and status != "honoured"):
        return
    await connection.execute(DELETE_WAITING, place)
    from_buffer = overbooked = 0
    if status == "honoured":
        from_buffer = await use_buffer(connection, layout.event_id, section_id, excess)
        overbooked = excess - from_buffer
        await accept_overbooked(connection, place, overbooked)
    found = {**place, "excess": excess, "percent": percent, "status": status}
    case = {**found, "policy": layout.oversell["policy"], "from_buffer": from_buffer, "overbooked": overbooked}
    oversell_id = (await connection.execute(INSERT_CASE, case)).scalar()
    if oversell_id is None:
        return
    if status == "cancelling":
        await connection.execute(LATEST_BUYERS, {**place, "excess": excess, "oversell_id": oversell_id})
    OVERSOLD.labels(status).inc(excess)
    log.error("oversell.found", **found)


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


@router.post(
    "/oversell/approve",
    operation_id="approve_oversell",
    openapi_extra=control("approve_oversell"),
    summary="Cancel the latest buyers of an oversell",
)
async def approve(
    operator: AnAdmin, state: StateDep, event_id: EventIdPath, approval: OversellApproval
) -> OversellApproved:
    """Decides every waiting oversell of this event: those who bought last lose their tickets and are
    refunded in full.
    """
    state.catalogue.layout(event_id)
    chosen: list[str] = []
    by, reason = operator.name, approval.reason
    async with state.db.begin() as connection:
        cases = (await connection.execute(WAITING_CASES, {"event_id": event_id})).all()
        for case in cases:
            place: Place = {"event_id": event_id, "section_id": case.section_id, "position": case.position}
            excess = await count_excess(connection, place)
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


@router.get("/reconcile", operation_id="list_drift", summary="List drift and oversells")
async def get_reconcile(operator: Viewer, state: StateDep, event_id: EventIdPath) -> ReconcileReport:
    """`watched` is what this process sees and has not acted on; the rest is the same in every process."""
    state.catalogue.layout(event_id)
    which = {"event_id": event_id}
    async with state.autocommit_db.connect() as connection:
        recorded = (await connection.execute(RECENT_DRIFT, {**which, "count_max": DRIFT_MAX})).mappings().all()
        cases = (await connection.execute(CASES, {**which, "count_max": CASES_MAX})).mappings().all()
        rows = (await connection.execute(RETURNS, which)).mappings()
        returns = [OversellReturn.model_validate(dict(row)) for row in rows]
    unconfirmed = sorted((drift.texts(), since) for drift, since in state.reconciler.unconfirmed(event_id).items())
    return ReconcileReport(
        watched=[
            UnconfirmedDrift(what=what, seen=actual, should_be=expected, since=since)
            for (what, actual, expected), since in unconfirmed[:DRIFT_MAX]
        ],
        found=[RecordedDrift.model_validate(dict(row)) for row in recorded],
        oversell=[
            OversellCase.model_validate({**case, "returns": [r for r in returns if r.oversell_id == case["id"]]})
            for case in cases
        ],
    )


async def request_refunds(state: State) -> int | Quiet:
    """Handles up to `BATCH_MAX` returns; for how many orders accepted the refund. Any number of processes may do it."""
    async with state.db.connect() as connection:
        due = list(await connection.execute(DUE, {"count_max": BATCH_MAX}))
    if not due:
        return Quiet()
    event_ids, ids = [row.event_id for row in due], [row.reservation_id for row in due]
    refs = [PaymentRef(reservation_id=r.reservation_id, order_reference=r.order_reference) for r in due]
    steps = [PaymentStep(event_id=e, **ref.model_dump()) for e, ref in zip(event_ids, refs, strict=True)]
    await state.returns.return_stock(steps, reason=REASON, actor=ACTOR)
    async with state.db.begin() as connection:
        await connection.execute(MARK_RETURNED, {"event_ids": event_ids, "ids": ids})
    try:
        answers = (await state.orders.refund(refs, reason=REASON)).refunds
    except Problem as problem:
        log.warning("orders.unreachable", problem=problem.slug, refunds=len(refs))
        return 0
    done = [(r.event_id, r.reservation_id, answer) for r, answer in zip(due, answers, strict=True) if answer != "later"]
    async with state.db.begin() as connection:
        values = {name: [row[i] for row in done] for i, name in enumerate(("event_ids", "ids", "refunds"))}
        await connection.execute(MARK_REFUNDED, values)
        await connection.execute(CLOSE_CASES)
    return len(done)
