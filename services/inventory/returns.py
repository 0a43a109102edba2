"""What was sold comes back: the ledger decides, then the gate follows; once, however often it is asked for.

A seat that was sold twice goes to its other buyer, and a ticket that never had a place frees none: what is free again
is counted from the live reservations, not added up.
"""

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.inventory.balance import right_seats, right_sections
from services.inventory.basket import basket_text
from services.inventory.facts import Fact, tell
from services.inventory.gate import Gate
from services.inventory.metrics import DRIFT, RETURNED
from services.inventory.record import Record, read, step_done
from shared.contracts.inventory import PaymentStep, StepDone
from shared.logs import data
from shared.postgres import statement
from shared.redis import ENGINE_AWAY

log = logging.getLogger("onsale.inventory")
LOCK = statement(__package__, "lock_reservations")
TAKE_BACK = statement(__package__, "take_back")
LOCK_SECTIONS = text(
    "SELECT section_id, version FROM inventory.section WHERE event_id = :event_id "
    "AND section_id = ANY(CAST(:section_ids AS text[])) ORDER BY section_id FOR UPDATE"
)
LOCK_SEATS = text(
    "WITH mine AS MATERIALIZED (SELECT x.event_id, x.section_id, x.position FROM inventory.reservation_seat x "
    "JOIN (SELECT CAST(:event_id AS text) AS event_id, a.* FROM unnest(CAST(:ids AS text[])) AS a (reservation_id) "
    "OFFSET 0) AS asked USING (event_id, reservation_id)) "
    "SELECT section_id, position FROM inventory.seat s JOIN mine USING (event_id, section_id, position) "
    "ORDER BY section_id, position FOR UPDATE OF s"
)
BLOCK = text(
    "UPDATE inventory.section SET blocked = blocked + :n, version = version + 1 "
    "WHERE event_id = :event_id AND section_id = :section_id AND kind = 'ga' RETURNING version"
)
EPOCH = text("SELECT gate_epoch FROM inventory.event WHERE event_id = :event_id")


class Freed(NamedTuple):
    """What came back to an event: seats with their new status, and how much more is left of each section."""

    epoch: int
    records: list[Record]
    seats: dict[tuple[str, int], str]
    more: dict[str, int]


class Returns:
    """The one step from `confirmed` to `returned`."""

    def __init__(self, engine: AsyncEngine, gate: Gate) -> None:
        self._engine, self._gate = engine, gate

    async def take_back(
        self, steps: Sequence[PaymentStep], *, reason: str, actor: str, keep_blocked: bool = False
    ) -> list[StepDone]:
        """`done`, also when it was done before; only for the order that bought it."""
        ids = sorted({step.reservation_id for step in steps})
        freed: dict[str, Freed] = {}
        async with self._engine.begin() as connection:
            await connection.execute(LOCK, {"ids": ids})
            records = await read(connection, ids)
            words = [_word(records.get(step.reservation_id), step) for step in steps]
            by_event: dict[str, list[Record]] = defaultdict(list)
            for record in records.values():
                mine = {w for w, step in zip(words, steps, strict=True) if step.reservation_id == record.reservation_id}
                if record.status == "confirmed" and "done" in mine:
                    by_event[record.event_id].append(record)
            for event_id, some in sorted(by_event.items()):
                freed[event_id] = await free(connection, event_id, some, keep_blocked=keep_blocked)
                facts = [_fact(record, reason) for record in some]
                await tell(connection, event_id, facts, actor=actor)
        for event_id, back in freed.items():
            RETURNED.labels(reason).inc(len(back.records))
            await self.follow(event_id, back, mark="x" if keep_blocked else ".")
        return [_done(records.get(step.reservation_id), word) for step, word in zip(steps, words, strict=True)]

    async def follow(self, event_id: str, back: Freed, *, mark: str) -> None:
        """The gate is told. What it misses is drift, found by reconcile."""
        left, status = dict(back.more), "available" if mark == "." else "blocked"
        try:
            for record in back.records:
                seats = [(s, p) for s, p, _, _ in record.seats if back.seats.get((s, p)) == status]
                ga = {s: max(0, min(quantity, left.get(s, 0))) for s, quantity, _ in record.ga}
                left |= {s: left.get(s, 0) - n for s, n in ga.items()}
                excess = {s: quantity - ga[s] for s, quantity, _ in record.ga if quantity > ga[s]}
                places = basket_text(seats, ((s, n) for s, n in ga.items() if n))
                await self._gate.take_back(
                    event_id, record, epoch=back.epoch, mark=mark, places=places, excess=excess
                )  # fmt: skip
        except ENGINE_AWAY as away:
            DRIFT.labels("follow-up").inc()
            log.warning("gate.behind", extra=data(event_id=event_id, error=type(away).__name__))


async def free(
    connection: AsyncConnection, event_id: str, records: list[Record], *, keep_blocked: bool,
    take: TextClause = TAKE_BACK, some: Mapping[str, object] | None = None,
) -> Freed:  # fmt: skip
    """Sections before seats, as every writer locks. `take` with `some` is the statement that takes them, all that these
    reservations bought unless it says otherwise.
    """
    epoch = int(await connection.scalar(EPOCH, {"event_id": event_id}) or 0)
    ids = [record.reservation_id for record in records]
    tickets: dict[str, int] = defaultdict(int)
    for record in records:
        for section_id, quantity, _ in record.ga:
            tickets[section_id] += quantity
    named = {s for record in records for s, _, _, _ in record.seats} | set(tickets)
    asked = {"event_id": event_id, "section_ids": sorted(named)}
    versions = {r.section_id: r.version for r in await connection.execute(LOCK_SECTIONS, asked)}
    locked = await connection.execute(LOCK_SEATS, {"event_id": event_id, "ids": ids})
    places = [(r.section_id, r.position) for r in locked]
    await connection.execute(take, {"event_id": event_id, "ids": ids, **(some or {})})
    free_mark = "blocked" if keep_blocked else "available"
    seats = await right_seats(connection, event_id, places, free_mark=free_mark)
    if keep_blocked:
        for section_id, n in tickets.items():
            row = {"event_id": event_id, "section_id": section_id, "n": n}
            versions[section_id] = (await connection.execute(BLOCK, row)).scalar_one()
    more = await right_sections(connection, event_id, versions)
    return Freed(epoch, records, seats, dict(tickets) if keep_blocked else more)


def _word(record: Record | None, step: PaymentStep) -> str:
    if record is None:
        return "unknown"
    if record.status not in ("confirmed", "returned"):
        return "ended" if not record.is_live else "not-owner"
    return "done" if record.order_reference == step.order_reference else "not-owner"


def _fact(record: Record, reason: str) -> Fact:
    after = {"status": "returned", "reason": reason, "order_reference": record.order_reference, **record.places()}
    return Fact("returned", record.reservation_id, record.version + 1, after)


def _done(record: Record | None, word: str) -> StepDone:
    if record is not None and word == "done":
        record.status = "returned"
    return step_done(record, word)
