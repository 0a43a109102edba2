"""Gate against ledger, and the ledger against itself, without stopping sales.

A difference seen once is usually a change on its way: only what is seen in every look for five seconds is touched. The
ledger is set right by its reservations, then the gate by the ledger; one reconciler at a time does it, on what it sees
at that moment, so that several never correct the same twice.

What reconcile found and what it did about it, kept so that any process can tell an operator.
"""

import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import insert, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.inventory.catalogue.layout import EventCache, Layout
from services.inventory.metrics import CORRECTED, DRIFT, RECONCILE_SECONDS
from services.inventory.reconcile import oversell
from services.inventory.reconcile.ledger_repair import Inconsistency, inconsistencies, repair
from services.inventory.reconcile.redis_diff import Difference, RedisStockState, compare, read_redis_stock
from services.inventory.redis_stock.client import RedisStock
from services.inventory.reservations.expiry import resolve_due
from services.inventory.stock.snapshot import MARKS, StockSnapshot, read_stock
from services.inventory.tables import drift
from shared.redis.client import REDIS_AWAY
from shared.runtime.group_commit import chunks
from shared.runtime.logging import data

SHOWN_MAX, NOTED_MAX = 200, 1000
RECENT = text(
    "SELECT what, seen, should_be, since, done, done_at FROM inventory.drift WHERE event_id = :event_id "
    "ORDER BY id DESC LIMIT :count_max"
)
FORGET = text("DELETE FROM inventory.drift WHERE done_at < clock_timestamp() - interval '30 days'")


class DriftRecord(NamedTuple):
    """One difference that stayed, since when, and what became of it: `corrected`, or `left` for the next look or for
    people.
    """

    difference: Difference
    since: datetime
    done: str


async def note(db: AsyncEngine, event_id: str, findings: Iterable[DriftRecord]) -> None:
    """Keeps them; of very many the first."""
    rows = [
        {"event_id": event_id, "what": what, "seen": seen, "should_be": should_be, "since": since, "done": done}
        for (what, seen, should_be), since, done in sorted(findings)[:NOTED_MAX]
    ]
    if rows:
        async with db.begin() as connection:
            await connection.execute(insert(drift), rows)


async def recent(connection: AsyncConnection, event_id: str) -> list[Mapping[str, Any]]:
    """The latest, newest first."""
    rows = await connection.execute(RECENT, {"event_id": event_id, "count_max": SHOWN_MAX})
    return [dict(row) for row in rows.mappings()]


async def forget(db: AsyncEngine) -> None:
    """Findings are kept for a month."""
    async with db.begin() as connection:
        await connection.execute(FORGET)


log = logging.getLogger("onsale.inventory")
AGE_S, SETTLED_AT_ONCE = 5.0, 500
ALONE = text("SELECT pg_try_advisory_xact_lock(hashtextextended('inventory reconcile ' || :event_id, 0))")


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """Everything that differs at one moment; the ledger's own faults are among it, each with its row."""

    redis_stock: RedisStockState
    stock: StockSnapshot
    found: set[Difference]
    wrong: dict[Difference, Inconsistency]


@dataclass(slots=True)
class _Pass:
    """When it was looked, and since when each difference is seen without a break; which of them people know about."""

    at_s: float
    since: dict[Difference, tuple[float, datetime]] = field(default_factory=dict)
    noted: set[Difference] = field(default_factory=set)

    def lost(self) -> frozenset[str]:
        return frozenset(what[5:] for what, seen, _ in self.since if what.startswith("hold ") and seen == "missing")


class Reconciler:
    """Looks at every event in turn and remembers what differed the last time."""

    def __init__(
        self, db: AsyncEngine, redis_stock: RedisStock, catalogue: EventCache, *, ready_since_s: Mapping[str, float],
        interval_s: float, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._db, self._redis_stock, self._catalogue = db, redis_stock, catalogue
        self._ready_since_s, self._interval_s, self._clock = ready_since_s, interval_s, clock
        self._last: dict[str, _Pass] = {}

    async def turn(self) -> None:
        """Looks where it is time: 5 s after a gate opened, again 5 s after a look that found something, else every
        interval.
        """
        for layout in self._catalogue.layouts():
            ready_s = self._ready_since_s.get(layout.event_id)
            if ready_s is None or self._clock() - ready_s < AGE_S:
                continue
            last = self._last.get(layout.event_id)
            pause_s = AGE_S if last and last.since else self._interval_s
            if last is None or last.at_s < ready_s or self._clock() - last.at_s >= pause_s:
                try:
                    await self.look(layout)
                except REDIS_AWAY:
                    self._last.pop(layout.event_id, None)

    def watched(self, event_id: str) -> list[tuple[Difference, datetime]]:
        """What this process has seen and not yet believed, or left to people."""
        last = self._last.get(event_id)
        return [(difference, since) for difference, (_, since) in sorted(last.since.items())] if last else []

    @RECONCILE_SECONDS.time()
    async def look(self, layout: Layout) -> dict[str, int]:
        """One look: what differs, how much of that is old and unchanged, and what was corrected."""
        last, now_s = self._last.get(layout.event_id) or _Pass(0.0), self._clock()
        view = await self._view(layout, last.lost())
        if view is None:
            return {"differences": 0, "old": 0, "corrected": 0}
        seen = now_s, datetime.now(UTC)
        look = _Pass(now_s, {d: last.since.get(d, seen) for d in view.found}, last.noted & view.found)
        self._last[layout.event_id] = look
        old = {difference for difference, (since_s, _) in look.since.items() if now_s - since_s >= AGE_S}
        corrected = await self._act(layout, look, old, view) if old else set()
        for difference in corrected:
            look.since.pop(difference, None)
        return {"differences": len(view.found), "old": len(old), "corrected": len(corrected)}

    async def _act(self, layout: Layout, look: _Pass, old: set[Difference], view: _Snapshot) -> set[Difference]:
        """Heals what can be healed, puts what was oversold before the policy, and tells people of the rest once."""
        corrected = await self._heal(layout, old, look.lost())
        oversold = {d: view.wrong[d] for d in old & view.wrong.keys() if view.wrong[d].kind in oversell.KINDS}
        await oversell.apply_policy(self._db, layout, oversold.values())
        news = old - look.noted - oversold.keys()
        findings = [DriftRecord(d, look.since[d][1], "corrected" if d in corrected else "left") for d in news]
        look.noted |= old - corrected
        for difference in news:
            DRIFT.labels("balance" if difference in view.wrong else "reconcile").inc()
        if news:
            await note(self._db, layout.event_id, findings)
            log.warning("drift.found", extra=data(event_id=layout.event_id, old=len(news), corrected=len(corrected)))
        return corrected

    async def _view(self, layout: Layout, lost: frozenset[str]) -> _Snapshot | None:
        redis_stock = await read_redis_stock(self._redis_stock.redis, layout.event_id, layout)
        if not redis_stock.ready:
            return None
        stock = await read_stock(self._db, layout.event_id, asked=redis_stock.holds, check=True)
        wrong = {_difference(w): w for w in inconsistencies(stock)}
        found = set(await compare(redis_stock, stock, lost=lost)) | wrong.keys()
        return _Snapshot(redis_stock, stock, found, wrong)

    async def _heal(self, layout: Layout, old: set[Difference], lost: frozenset[str]) -> set[Difference]:
        """The ledger first, then holds, then places and counts, each time what still differs; what was corrected."""
        async with self._alone(layout.event_id) as alone:
            view = await self._view(layout, lost) if alone else None
            if view is None:
                return set()
            still = old & view.found
            mine = [w for d, w in view.wrong.items() if d in still and w.kind in ("remaining", "blocked", "seat")]
            if mine:
                await repair(self._db, layout.event_id, mine)
            now_ms, _ = await self._redis_stock.due(layout.event_id, count_max=1)
            gone = [what[5:] for what, seen, _ in sorted(still) if what.startswith("hold ") and seen == "there"]
            for some in chunks(gone, SETTLED_AT_ONCE) if now_ms else ():
                await resolve_due(self._db, self._redis_stock, layout.event_id, some, now_ms=now_ms)
            smaller = {what[7:] for what, _, _ in still if what.startswith("basket ")}
            for record in view.stock.live if smaller else ():
                if record.reservation_id in smaller:
                    await self._redis_stock.keep(layout.event_id, record.reservation_id, record.basket())
            if (mine or gone or smaller) and (view := await self._view(layout, lost)) is None:
                return set()
            doubted = {what.removeprefix("ledger-") for what, _, _ in view.wrong}
            believed = {d for d in still & view.found if d[0] not in doubted}
            await self._correct(layout.event_id, view.stock, believed)
            after = await self._view(layout, lost)
        corrected = still - after.found if after else set()
        for what, _, _ in corrected:
            CORRECTED.labels(what.split(" ")[0]).inc()
        return corrected

    async def _correct(self, event_id: str, stock: StockSnapshot, old: set[Difference]) -> None:
        """Seats and counts to the ledger's word, missing holds again."""
        places: list[str | int] = []
        usage: list[tuple[str, int]] = []
        for what, seen, should_be in sorted(old):
            kind, name, *rest = what.split(" ")
            if kind == "seat":
                places += [name, int(rest[0]), seen[:1], should_be[:1]]
            elif kind == "count":
                places += [name, "count", MARKS[rest[0]], -int(seen)]
            elif kind == "usage":
                usage.append((name, int(should_be)))
        await self._redis_stock.set_positions(event_id, places)
        missing = [r for r in stock.live if (f"hold {r.reservation_id}", "missing", "there") in old]
        await self._redis_stock.restore(event_id, missing, usage)

    @asynccontextmanager
    async def _alone(self, event_id: str) -> AsyncIterator[bool]:
        """Whether this is the one reconciler that may correct now; others find it done."""
        async with self._db.begin() as connection:
            yield bool(await connection.scalar(ALONE, {"event_id": event_id}))


def _difference(wrong: Inconsistency) -> Difference:
    """As the gate's are told; counters by how far they are off, which stays the same while others sell."""
    place = f"{wrong.section_id} {wrong.position}" if wrong.position >= 0 else wrong.section_id
    if wrong.kind in ("remaining", "blocked"):
        return f"ledger-{wrong.kind} {place}", f"{wrong.delta:+d}", "+0"
    return f"ledger-{wrong.kind} {place}", wrong.seen, wrong.expected
