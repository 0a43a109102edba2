"""Reconciliation: compare Redis with PostgreSQL, and PostgreSQL with itself, and repair both while sales go on.

A difference seen once is usually a change under way, so only what stays unchanged for `CONFIRM_AFTER_S` is repaired:
first the database from its reservations, then Redis from the database. One process repairs at a time, on a fresh
comparison, so nothing is corrected twice. What was confirmed is recorded for operators in the table `drift`.
"""

import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from sqlalchemy import insert, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.inventory.catalogue.event_cache import EventCache
from services.inventory.catalogue.layout import Layout
from services.inventory.metrics import DRIFT, DRIFT_CORRECTED, RECONCILE_SECONDS
from services.inventory.reconcile import oversell
from services.inventory.reconcile.db_repair import Inconsistency, inconsistencies, repair
from services.inventory.reconcile.redis_diff import Difference, RedisStockState, compare, read_redis_stock
from services.inventory.redis_stock.client import RedisStock
from services.inventory.reservations.expiry import resolve_due
from services.inventory.stock.snapshot import MARKS, StockSnapshot, read_stock
from services.inventory.tables import drift
from shared.concurrency.group_commit import chunks
from shared.contracts.admin.inventory import ReconcilePass, RecordedDrift
from shared.redis.client import REDIS_AWAY
from shared.runtime.logging import data

SHOWN_MAX, RECORDED_MAX = 200, 1000
RECENT_DRIFT = text(
    "SELECT item AS what, actual AS seen, expected AS should_be, since, action AS done, acted_at AS done_at "
    "FROM inventory.drift WHERE event_id = :event_id "
    "ORDER BY id DESC LIMIT :count_max"
)
DELETE_OLD_DRIFT = text("DELETE FROM inventory.drift WHERE acted_at < clock_timestamp() - interval '30 days'")


class DriftRecord(NamedTuple):
    """A confirmed difference, since when it is seen, and what was done: `corrected`, or `left` for a later pass or an
    operator.
    """

    difference: Difference
    since: datetime
    action: str


async def record_drift(db: AsyncEngine, event_id: str, records: Iterable[DriftRecord]) -> None:
    """Writes at most `RECORDED_MAX` of them."""
    rows = [
        {"event_id": event_id, "item": item, "actual": actual, "expected": expected, "since": since, "action": action}
        for (item, actual, expected), since, action in sorted(records)[:RECORDED_MAX]
    ]
    if rows:
        async with db.begin() as connection:
            await connection.execute(insert(drift), rows)


async def recent_drift(connection: AsyncConnection, event_id: str) -> list[RecordedDrift]:
    """Newest first, at most `SHOWN_MAX`."""
    rows = await connection.execute(RECENT_DRIFT, {"event_id": event_id, "count_max": SHOWN_MAX})
    return [RecordedDrift.model_validate(dict(row)) for row in rows.mappings()]


async def delete_old_drift(db: AsyncEngine) -> None:
    """Deletes records that are older than a month."""
    async with db.begin() as connection:
        await connection.execute(DELETE_OLD_DRIFT)


log = logging.getLogger("onsale.inventory")
CONFIRM_AFTER_S, RESOLVED_PER_BATCH = 5.0, 500
TRY_EXCLUSIVE_LOCK = text("SELECT pg_try_advisory_xact_lock(hashtextextended('inventory reconcile ' || :event_id, 0))")


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """All differences at one moment; `inconsistencies` are those of the database with itself, a part of
    `differences`.
    """

    redis_stock: RedisStockState
    stock: StockSnapshot
    differences: set[Difference]
    inconsistencies: dict[Difference, Inconsistency]


@dataclass(slots=True)
class _Pass:
    """One pass over an event: when it began, since when each difference is seen in every pass, which were recorded."""

    started_s: float
    since: dict[Difference, tuple[float, datetime]] = field(default_factory=dict)
    recorded: set[Difference] = field(default_factory=set)

    def missing_holds(self) -> frozenset[str]:
        return frozenset(item[5:] for item, actual, _ in self.since if item.startswith("hold ") and actual == "missing")


class Reconciler:
    """Compares every event in turn and remembers the last pass of each."""

    def __init__(
        self, db: AsyncEngine, redis_stock: RedisStock, catalogue: EventCache, *, ready_since_s: Mapping[str, float],
        interval_s: float, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._db, self._redis_stock, self._catalogue = db, redis_stock, catalogue
        self._ready_since_s, self._interval_s, self._clock = ready_since_s, interval_s, clock
        self._last_pass: dict[str, _Pass] = {}

    async def run_once(self) -> None:
        """Reconciles the events that are due: 5 s after Redis became ready, 5 s after a pass with differences, else
        every interval.
        """
        for layout in self._catalogue.layouts():
            ready_s = self._ready_since_s.get(layout.event_id)
            if ready_s is None or self._clock() - ready_s < CONFIRM_AFTER_S:
                continue
            last = self._last_pass.get(layout.event_id)
            pause_s = CONFIRM_AFTER_S if last and last.since else self._interval_s
            if last is None or last.started_s < ready_s or self._clock() - last.started_s >= pause_s:
                try:
                    await self.reconcile(layout)
                except REDIS_AWAY:
                    self._last_pass.pop(layout.event_id, None)

    def unconfirmed(self, event_id: str) -> list[tuple[Difference, datetime]]:
        """Differences that this process sees and has not corrected, with the time of the first pass that saw them."""
        last = self._last_pass.get(event_id)
        return [(difference, since) for difference, (_, since) in sorted(last.since.items())] if last else []

    @RECONCILE_SECONDS.time()
    async def reconcile(self, layout: Layout) -> ReconcilePass:
        """One pass: compares, and repairs what earlier passes have confirmed."""
        last, now_s = self._last_pass.get(layout.event_id) or _Pass(0.0), self._clock()
        snapshot = await self._snapshot(layout, last.missing_holds())
        if snapshot is None:
            return ReconcilePass(differences=0, old=0, corrected=0)
        found, first_seen = snapshot.differences, (now_s, datetime.now(UTC))
        current = _Pass(now_s, {d: last.since.get(d, first_seen) for d in found}, last.recorded & found)
        self._last_pass[layout.event_id] = current
        confirmed = {d for d, (since_s, _) in current.since.items() if now_s - since_s >= CONFIRM_AFTER_S}
        corrected = await self._respond(layout, current, confirmed, snapshot) if confirmed else set()
        for difference in corrected:
            current.since.pop(difference, None)
        return ReconcilePass(differences=len(found), old=len(confirmed), corrected=len(corrected))

    async def _respond(
        self, layout: Layout, current: _Pass, confirmed: set[Difference], snapshot: _Snapshot
    ) -> set[Difference]:
        """Repairs what can be repaired, applies the oversell policy, and records each difference once."""
        corrected = await self._repair(layout, confirmed, current.missing_holds())
        inconsistencies = snapshot.inconsistencies
        oversold = {
            d: inconsistencies[d]
            for d in confirmed & inconsistencies.keys()
            if inconsistencies[d].kind in oversell.KINDS
        }
        await oversell.apply_policy(self._db, layout, oversold.values())
        new = confirmed - current.recorded - oversold.keys()
        records = [DriftRecord(d, current.since[d][1], "corrected" if d in corrected else "left") for d in new]
        current.recorded |= confirmed - corrected
        for difference in new:
            DRIFT.labels("database" if difference in inconsistencies else "reconcile").inc()
        if new:
            await record_drift(self._db, layout.event_id, records)
            log.warning(
                "drift.found", extra=data(event_id=layout.event_id, confirmed=len(new), corrected=len(corrected))
            )
        return corrected

    async def _snapshot(self, layout: Layout, missing_holds: frozenset[str]) -> _Snapshot | None:
        """None while Redis is not ready."""
        redis_stock = await read_redis_stock(self._redis_stock.redis, layout.event_id, layout)
        if not redis_stock.ready:
            return None
        stock = await read_stock(self._db, layout.event_id, reservation_ids=redis_stock.holds, check=True)
        of_db = {_difference(one): one for one in inconsistencies(stock)}
        found = set(await compare(redis_stock, stock, lost=missing_holds)) | of_db.keys()
        return _Snapshot(redis_stock, stock, found, of_db)

    async def _repair(
        self, layout: Layout, confirmed: set[Difference], missing_holds: frozenset[str]
    ) -> set[Difference]:
        """Repairs the database, then holds, then positions and counts, each time only what still differs. Returns what
        was corrected.
        """
        async with self._exclusive(layout.event_id) as is_exclusive:
            snapshot = await self._snapshot(layout, missing_holds) if is_exclusive else None
            if snapshot is None:
                return set()
            still = confirmed & snapshot.differences
            if await self._repair_holds(layout.event_id, snapshot, still):
                snapshot = await self._snapshot(layout, missing_holds)
                if snapshot is None:
                    return set()
            unresolved = {item.removeprefix("database-") for item, _, _ in snapshot.inconsistencies}
            repairable = {d for d in still & snapshot.differences if d[0] not in unresolved}
            await self._repair_redis(layout.event_id, snapshot.stock, repairable)
            after = await self._snapshot(layout, missing_holds)
        corrected = still - after.differences if after else set()
        for item, _, _ in corrected:
            DRIFT_CORRECTED.labels(item.split(" ")[0]).inc()
        return corrected

    async def _repair_holds(self, event_id: str, snapshot: _Snapshot, still: set[Difference]) -> bool:
        """Repairs the database's own rows, and holds that are over or smaller there; whether there were any."""
        own = [
            one
            for d, one in snapshot.inconsistencies.items()
            if d in still and one.kind in ("remaining", "blocked", "seat")
        ]
        if own:
            await repair(self._db, event_id, own)
        now_ms, _ = await self._redis_stock.list_due(event_id, count_max=1)
        ended = [item[5:] for item, actual, _ in sorted(still) if item.startswith("hold ") and actual == "there"]
        for some in chunks(ended, RESOLVED_PER_BATCH) if now_ms else ():
            await resolve_due(self._db, self._redis_stock, event_id, some, now_ms=now_ms)
        smaller = {item.removeprefix("selection ") for item, _, _ in still if item.startswith("selection ")}
        for hold in snapshot.stock.live if smaller else ():
            if hold.reservation_id in smaller:
                await self._redis_stock.keep_only(event_id, hold.reservation_id, hold.selection_text())
        return bool(own or ended or smaller)

    async def _repair_redis(self, event_id: str, stock: StockSnapshot, repairable: set[Difference]) -> None:
        """Sets positions, counts and usage as in the database, and restores missing holds."""
        positions: list[str | int] = []
        usage: list[tuple[str, int]] = []
        for item, actual, expected in sorted(repairable):
            kind, name, *rest = item.split(" ")
            if kind == "seat":
                positions += [name, int(rest[0]), actual[:1], expected[:1]]
            elif kind == "count":
                positions += [name, "count", MARKS[rest[0]], -int(actual)]
            elif kind == "usage":
                usage.append((name, int(expected)))
        await self._redis_stock.set_positions(event_id, positions)
        missing = [r for r in stock.live if (f"hold {r.reservation_id}", "missing", "there") in repairable]
        await self._redis_stock.restore(event_id, missing, usage)

    @asynccontextmanager
    async def _exclusive(self, event_id: str) -> AsyncIterator[bool]:
        """Whether this process may repair the event now: only one does at a time."""
        async with self._db.begin() as connection:
            yield bool(await connection.scalar(TRY_EXCLUSIVE_LOCK, {"event_id": event_id}))


def _difference(one: Inconsistency) -> Difference:
    """In the form of Redis' differences. Counters are given by how far they are off, which stays the same while others
    sell.
    """
    place = f"{one.section_id} {one.position}" if one.position >= 0 else one.section_id
    if one.kind in ("remaining", "blocked"):
        return f"database-{one.kind} {place}", f"{one.delta:+d}", "+0"
    return f"database-{one.kind} {place}", one.actual, one.expected
