"""Reconciliation: compare Redis with PostgreSQL, and PostgreSQL with itself, and repair both while sales go on.

A difference seen once is usually a change under way, so only what stays unchanged for `CONFIRM_AFTER_S` is repaired:
first the database from its reservations, then Redis from the database. One process repairs at a time, on a fresh
comparison, so nothing is corrected twice. What was confirmed is recorded for operators in the table `drift`.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Set
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory import tables
from services.inventory.layout.layout import EventCache, Layout
from services.inventory.layout.selection import SeatPosition, StockSelection
from services.inventory.metrics import DRIFT, DRIFT_CORRECTED, DRIFT_STANDING, RECONCILE_SECONDS
from services.inventory.reconcile.redis_diff import MISSING, THERE, compare_stock
from services.inventory.redis_stock.client import Change, RedisStock, restored
from services.inventory.redis_stock.push import SEATS_PER_SCRIPT
from services.inventory.reservations.expiry import resolve_due
from services.inventory.store.drift import Drift, SeatRow, record_drift
from services.inventory.store.repair import OVERSOLD, REPAIRED, honour, inconsistencies, repair
from services.inventory.store.snapshot import StockSnapshot
from shared.audit_log import Actor, of_event
from shared.concurrency.background import QUIET_S, Quiet, wake
from shared.concurrency.coalescing import chunks
from shared.contracts.admin.inventory import ReconcilePass
from shared.redis.client import REDIS_AWAY
from shared.runtime.logging import get_logger

log = get_logger("onsale.inventory")
CONFIRM_AFTER_S, RESOLVED_PER_BATCH = 5.0, 500
PAUSE_PER_PASS = 10  # while it sells a few changes are always under way, and a pass over a large event takes seconds
# What is done about confirmed oversells, at each pass; returns those that it records itself.
OversellPolicy = Callable[[Layout, Set[Drift]], Awaitable[Set[Drift]]]
TRY_EXCLUSIVE_LOCK = text("SELECT pg_try_advisory_xact_lock(hashtextextended('inventory reconcile ' || :event_id, 0))")


class _Comparison(NamedTuple):
    """PostgreSQL's stock at one moment, all drift between it and Redis and inside it, and the epoch of that Redis."""

    epoch: int
    stock: StockSnapshot
    drift: set[Drift]


@dataclass(slots=True)
class _Pass:
    """One pass over an event: when it began, how long it took, since when each drift is found in every pass, and which
    was recorded.
    """

    started_s: float
    took_s: float = 0.0
    since: dict[Drift, tuple[float, datetime]] = field(default_factory=dict)
    recorded: set[Drift] = field(default_factory=set)

    def missing_holds(self) -> set[str]:
        return {drift.subject for drift in self.since if drift.actual == MISSING}


class Reconciler:
    """Compares every event in turn and remembers the last pass of each."""

    def __init__(
        self, db: AsyncEngine, redis_stock: RedisStock, catalogue: EventCache, *, ready_since_s: Mapping[str, float],
        interval_s: float, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._db, self._redis_stock, self._catalogue = db, redis_stock, catalogue
        self._ready_since_s, self._interval_s, self._clock = ready_since_s, interval_s, clock
        self._last_pass: dict[str, _Pass] = {}
        self.oversell_policy: OversellPolicy = self._honour

    async def run_once(self) -> Quiet:
        """Reconciles the events that are due: 5 s after Redis became ready or missed a change, 5 s after a pass with
        differences or ten times as long as it took, else every interval. Quiet until the next is due.
        """
        for layout in self._catalogue.layouts():
            if self._due_in_s(layout.event_id) > 0:
                continue
            self._redis_stock.behind.discard(layout.event_id)
            try:
                await self.reconcile(layout)
            except REDIS_AWAY:
                self._last_pass.pop(layout.event_id, None)
        return Quiet(min([QUIET_S, *(self._due_in_s(layout.event_id) for layout in self._catalogue.layouts())]))

    def _due_in_s(self, event_id: str) -> float:
        """How soon the next pass is due; while Redis is not ready, it may be so any moment."""
        ready_s, last = self._ready_since_s.get(event_id), self._last_pass.get(event_id)
        if ready_s is None:
            return CONFIRM_AFTER_S
        from_s, pause_s = ready_s, CONFIRM_AFTER_S
        if last and last.started_s >= ready_s:
            from_s, pause_s = last.started_s, self._pause_s(event_id, last)
        return from_s + pause_s - self._clock()

    def _pause_s(self, event_id: str, last: _Pass) -> float:
        """How long after the beginning of the last pass the next one is due."""
        if event_id in self._redis_stock.behind:
            return CONFIRM_AFTER_S
        again_s = max(CONFIRM_AFTER_S, PAUSE_PER_PASS * last.took_s) if last.since else self._interval_s
        return min(again_s, self._interval_s)

    def unconfirmed(self, event_id: str) -> dict[Drift, datetime]:
        """Drift that this process sees and has not corrected, with the time of the first pass that saw it."""
        return {drift: at for drift, (_, at) in self._last_pass.get(event_id, _Pass(0.0)).since.items()}

    async def reconcile_for(self, layout: Layout, *, actor: str, reason: str | None) -> ReconcilePass:
        """One pass that an operator asked for, with its outcome in the audit log."""
        done = await self.reconcile(layout)
        async with self._db.begin() as connection:
            by, subject = Actor(actor, reason), of_event(layout.event_id)
            await tables.audit_log.write(connection, "reconcile", by, subject=subject, after=done.model_dump())
        return done

    @RECONCILE_SECONDS.time()
    async def reconcile(self, layout: Layout) -> ReconcilePass:
        """One pass: compares, and repairs what earlier passes have confirmed."""
        last, now_s = self._last_pass.get(layout.event_id) or _Pass(0.0), self._clock()
        comparison = await self._compare(layout, last.missing_holds())
        if comparison is None:
            return ReconcilePass(differences=0, old=0, corrected=0)
        found, first_seen = comparison.drift, (now_s, datetime.now(UTC))
        current = _Pass(
            now_s, self._clock() - now_s, {d: last.since.get(d, first_seen) for d in found}, last.recorded & found
        )  # fmt: skip
        self._last_pass[layout.event_id] = current
        confirmed = {d for d, (since_s, _) in current.since.items() if now_s - since_s >= CONFIRM_AFTER_S}
        corrected = await self._respond(layout, current, confirmed) if confirmed else set()
        if found:
            wake("inventory")  # what the policy begins goes on in another loop
        for drift in corrected:
            current.since.pop(drift, None)
        DRIFT_STANDING.labels(layout.event_id).set(len(current.since))
        return ReconcilePass(differences=len(found), old=len(confirmed), corrected=len(corrected))

    async def _respond(self, layout: Layout, current: _Pass, confirmed: set[Drift]) -> set[Drift]:
        """Repairs what can be repaired, applies the oversell policy, and records each other drift once."""
        corrected = await self._repair(layout, confirmed, current.missing_holds())
        decided = await self.oversell_policy(layout, {drift for drift in confirmed if drift.kind in OVERSOLD})
        new = confirmed - current.recorded - decided
        current.recorded |= confirmed - corrected
        for drift in new:
            DRIFT.labels("database" if drift.is_of_database else "reconcile").inc()
        if new:
            await record_drift(self._db, layout.event_id, {d: current.since[d][1] for d in new}, corrected)
            log.warning("drift.found", event_id=layout.event_id, confirmed=len(new), corrected=len(corrected))
        return corrected

    async def _honour(self, layout: Layout, oversold: Set[Drift]) -> Set[Drift]:
        await honour(self._db, layout.event_id, oversold)
        return frozenset()

    async def _compare(self, layout: Layout, missing_holds: set[str]) -> _Comparison | None:
        """None while Redis is not ready."""
        redis_stock, stock, drift = await compare_stock(self._db, self._redis_stock.redis, layout, lost=missing_holds)
        if not redis_stock.ready:
            return None
        return _Comparison(redis_stock.epoch, stock, {*drift, *inconsistencies(stock)})

    async def _repair(self, layout: Layout, confirmed: set[Drift], missing_holds: set[str]) -> set[Drift]:
        """Repairs the database, then holds, then positions and counts, each time only what still differs. Returns what
        was corrected.
        """
        async with self._exclusive(layout.event_id) as is_exclusive:
            now = await self._compare(layout, missing_holds) if is_exclusive else None
            if now is None:
                return set()
            still = confirmed & now.drift
            if await self._repair_holds(layout.event_id, now.stock, still):
                now = await self._compare(layout, missing_holds)
                if now is None:
                    return set()
            unresolved = {drift.seat for drift in now.drift if drift.kind == "database-seat"}
            repairable = {d for d in still & now.drift if d.kind != "seat" or d.seat not in unresolved}
            await self._repair_redis(layout.event_id, now.stock, repairable, epoch=now.epoch)
            after = await self._compare(layout, missing_holds)
        corrected = still - after.drift if after else set()
        for drift in corrected:
            DRIFT_CORRECTED.labels(drift.kind).inc()
        return corrected

    async def _repair_holds(self, event_id: str, stock: StockSnapshot, still: set[Drift]) -> bool:
        """Repairs the database's own rows, and holds that are over or smaller there; whether there were any."""
        own = [drift for drift in still if drift.kind in REPAIRED]
        if own:
            await repair(self._db, event_id, own)
        now_ms, _ = await self._redis_stock.list_due(event_id, count_max=1)
        ended = sorted(drift.subject for drift in still if drift.actual == THERE)
        for some in chunks(ended, RESOLVED_PER_BATCH) if now_ms else ():
            await resolve_due(self._db, self._redis_stock, event_id, some, now_ms=now_ms)
        smaller = {drift.subject for drift in still if drift.kind == "selection"}
        changed = [restored(hold) for hold in stock.live if hold.reservation_id in smaller]
        await self._redis_stock.follow(event_id, changed)
        return bool(own or ended or smaller)

    async def _repair_redis(self, event_id: str, stock: StockSnapshot, repairable: set[Drift], *, epoch: int) -> None:
        """Sets positions, counts and usage as in the database, and restores missing holds."""
        seats: dict[tuple[str, str], list[SeatPosition]] = {}
        places: list[Change] = []
        usage: list[tuple[str, int]] = []
        missing: set[str] = set()
        for drift in sorted(repairable, key=Drift.texts):
            match drift:
                case Drift("seat", _, _, SeatRow(mark), SeatRow(expected)):
                    seats.setdefault((mark, expected), []).append(drift.seat)
                case Drift("count", section_id, str(name), int(off)):
                    places.append({"id": section_id, "off": {name: off}})
                case Drift("usage", holder, _, _, int(tickets)):
                    usage.append((holder, tickets))
                case Drift("hold", reservation_id, _, "missing"):
                    missing.add(reservation_id)
        places += [
            {"from": mark, "to": expected, "seats": StockSelection(tuple(some)).text()}
            for (mark, expected), positions in seats.items()
            for some in chunks(sorted(positions), SEATS_PER_SCRIPT)
        ]
        lost = [restored(hold) for hold in stock.live if hold.reservation_id in missing]
        await self._redis_stock.follow(event_id, lost, places=places, tickets=usage, epoch=epoch)

    @asynccontextmanager
    async def _exclusive(self, event_id: str) -> AsyncIterator[bool]:
        """Whether this process may repair the event now: only one does at a time."""
        async with self._db.begin() as connection:
            yield bool(await connection.scalar(TRY_EXCLUSIVE_LOCK, {"event_id": event_id}))
