"""The availability publisher: one stock frame per event, at most four a second, repeated every five seconds; and what
a feature publishes of it while somebody watches.

Scripts mark the sections they change as dirty, so selling never waits for publishing.
"""

import asyncio
import math
import time
from collections.abc import Iterable
from contextlib import suppress
from itertools import compress
from typing import Protocol

from cachetools import TTLCache
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.layout.layout import EventCache, Layout
from services.inventory.layout.selection import section_of
from services.inventory.redis_keys import Keys
from services.inventory.redis_stock.client import EVENTS_PER_ROUND_TRIP, RedisStock
from services.inventory.store.snapshot import count_sections
from shared.concurrency.background import QUIET_S, Quiet
from shared.concurrency.coalescing import chunks
from shared.contracts.event_parts.price_types import QUOTA
from shared.contracts.frames import FRAME_REPEAT_S, SectionCounts, StockFrame, TypeCounts, stock_channel
from shared.messaging.snapshots import SnapshotPublisher
from shared.redis.client import REDIS_AWAY, RedisError
from shared.runtime.clock import now_ms

COUNT_HOLDERS = text(
    "SELECT count(DISTINCT holder) FROM inventory.reservation "
    "WHERE event_id = :event_id AND status IN ('pending_payment', 'paying')"
)
COUNT_RESERVED = text(
    "SELECT section_id, count(*) AS n FROM inventory.seat "
    "WHERE event_id = :event_id AND allotment_id IS NOT NULL AND status = 'available' GROUP BY section_id"
)
CACHE_S = 0.25
AGAIN_S = 0.8 * FRAME_REPEAT_S  # a pause of the loop ends up to a second before a frame must be repeated


class WatchedFrames(Protocol):
    """What a feature publishes of an event's stock, only while a key in Redis says that somebody watches."""

    def key(self, event_id: str) -> str:
        """That key."""

    async def publish(self, layout: Layout, *, again: bool) -> None:
        """Publishes what has changed; with `again` also what has not. Raises what Redis raised."""


class AvailabilityPublisher:
    """Publishes frames of the stock, and answers the latest one; `watched` is there if a feature has put it there."""

    def __init__(
        self, db: AsyncEngine, redis_stock: RedisStock, catalogue: EventCache, snapshots: SnapshotPublisher
    ) -> None:
        self._db, self._redis_stock, self._catalogue, self._snapshots = db, redis_stock, catalogue, snapshots
        self.watched: WatchedFrames | None = None
        self._published_at_s: dict[str, float] = {}
        self._cached: TTLCache[str, StockFrame] = TTLCache(math.inf, CACHE_S)
        self._locks: dict[str, asyncio.Lock] = {}
        self._reported_not_ready: set[str] = set()  # counting a large stock again and again would slow its rebuild

    async def publish(self) -> Quiet | None:
        """Publishes the events that changed, and those whose last frame is old. Quiet until the next one must be
        repeated, if nothing had changed.
        """
        layouts = self._catalogue.layouts()
        changed, watched = await self._changed_and_watched(layouts)
        for layout in layouts:
            due = time.monotonic() - self._published_at_s.get(layout.event_id, 0.0) > AGAIN_S - 1
            if not due and layout.event_id not in changed:
                continue
            with suppress(*REDIS_AWAY):  # other events may be on another Redis node
                frame = await self._frame(layout, force=due, peek=False)
                if frame is not None:
                    await self._snapshots.publish(stock_channel(layout.event_id), frame)
                    self._published_at_s[layout.event_id] = time.monotonic()
                if self.watched and layout.event_id in watched:
                    await self.watched.publish(layout, again=due)
        if changed:
            return None
        oldest_s = min((self._published_at_s.get(layout.event_id, 0.0) for layout in layouts), default=math.inf)
        return Quiet(min(QUIET_S, oldest_s + AGAIN_S - time.monotonic()))

    async def _changed_and_watched(self, layouts: Iterable[Layout]) -> tuple[set[str], set[str]]:
        """Events whose stock may have changed since their last frame, and events that somebody watches, many per round
        trip.
        """
        changed, watched = set[str](), set[str]()
        for some in chunks((layout.event_id for layout in layouts), EVENTS_PER_ROUND_TRIP):
            pipe = self._redis_stock.redis.pipeline(transaction=False)
            for key in [Keys.of(each).dirty for each in some] + [
                self.watched.key(each) for each in some if self.watched
            ]:
                pipe.exists(key)
            try:
                found = await pipe.execute()
                changed.update(compress(some, found))
                watched.update(compress(some, found[len(some) :]))
            except RedisError:
                changed.update(some)  # each is queried by itself: other Redis nodes may answer
                watched.update(some)
        return changed, watched

    def latest(self, event_id: str) -> StockFrame | None:
        """The stock, if this process read it at most `CACHE_S` ago."""
        return self._cached.get(event_id)

    async def frame(self, layout: Layout) -> StockFrame:
        """The stock, at most `CACHE_S` old: from Redis, or from PostgreSQL while Redis is not ready. Concurrent
        requests share one read.
        """
        async with self._locks.setdefault(layout.event_id, asyncio.Lock()):
            frame = self._cached.get(layout.event_id)
            if frame is None:
                try:
                    frame = await self._frame(layout, force=True, peek=True)
                except REDIS_AWAY:
                    frame = await self.frame_from_db(layout.event_id, ready=False)
                assert frame is not None
                self._cached[layout.event_id] = frame
            return frame

    async def _frame(self, layout: Layout, *, force: bool, peek: bool) -> StockFrame | None:
        clocks = self._redis_stock.script_clocks()
        reply = await self._redis_stock.call("publish", layout.event_id, **clocks, force=int(force), peek=int(peek))
        if not reply:
            return None
        ready, epoch, version, at_ms, holders, begun, ended = (int(part) for part in reply[:7])
        if not ready or self._redis_stock.clocks.apart():
            if not peek:
                if layout.event_id in self._reported_not_ready and not force:
                    return None
                self._reported_not_ready.add(layout.event_id)
            return await self.frame_from_db(layout.event_id, ready=False, epoch=epoch, version=version)
        self._reported_not_ready.discard(layout.event_id)
        counts = {key.decode(): int(value) for key, value in zip(reply[7::2], reply[8::2], strict=True)}
        apart = await self._apart(layout) if layout.exclusive.seats else {}

        def counted(section_id: str) -> SectionCounts:
            pools = layout.pools.get(section_id, ())
            available, reserved = max(0, counts.get(f"{section_id}:available", 0)), apart.get(section_id, 0)
            held, sold = (sum(counts.get(f"{s}:{n}", 0) for s in (section_id, *pools)) for n in ("held", "sold"))
            return SectionCounts(
                section_id=section_id, available=max(0, available - reserved), held=held, sold=sold, at_ms=at_ms,
                reserved=reserved + sum(max(0, counts.get(f"{pool}:available", 0)) for pool in pools),
            )  # fmt: skip

        sections = [counted(section_id) for section_id in layout.sections]
        types = [
            TypeCounts(
                type_id=s[1:], available=max(0, counts.get(f"{s}:available", 0)), held=counts.get(f"{s}:held", 0),
                sold=counts.get(f"{s}:sold", 0),
            )
            for s in layout.quotas
        ]  # fmt: skip
        return StockFrame(
            event_id=layout.event_id, epoch=epoch, version=version, ready=True, at_ms=at_ms, sections=sections,
            types=types, holders_holding=holders, holds_begun=begun, holds_let_go=ended,
        )  # fmt: skip

    async def _apart(self, layout: Layout) -> dict[str, int]:
        """Free seats that not everybody may buy, by section; read a moment after the counts."""
        key, reserved = Keys.of(layout.event_id).map, layout.exclusive.seats
        pipe = self._redis_stock.redis.pipeline(transaction=False)
        for section_id, runs in reserved.items():
            pipe.getrange(key + section_id, runs[0][0], runs[-1][1])
        found: dict[str, int] = {}
        for (section_id, runs), marks in zip(reserved.items(), await pipe.execute(), strict=True):
            start = runs[0][0]
            found[section_id] = sum(marks.count(b".", first - start, last - start + 1) for first, last in runs)
        return found

    async def frame_from_db(
        self, event_id: str, *, ready: bool = True, epoch: int | None = None, version: int | None = None
    ) -> StockFrame:
        """The stock as counted in PostgreSQL."""
        at_ms = now_ms()
        async with self._db.connect() as connection:
            rows = await count_sections(connection, event_id)
            apart = {row.section_id: row.n for row in await connection.execute(COUNT_RESERVED, {"event_id": event_id})}
            holders = (await connection.execute(COUNT_HOLDERS, {"event_id": event_id})).scalar_one()
        sections = list[SectionCounts]()
        for s in dict.fromkeys(section_of(each) for each in rows if each[0] != QUOTA):
            own = [row for each, row in rows.items() if each[0] != QUOTA and section_of(each) == s]
            available, reserved = rows[s]["available"], apart.get(s, 0)
            sections.append(SectionCounts(
                section_id=s, available=max(0, available - reserved), held=sum(int(r["held"]) for r in own),
                sold=sum(int(r["sold"]) for r in own), at_ms=at_ms,
                reserved=reserved + sum(r["available"] for r in own) - available,
            ))  # fmt: skip
        types = [
            TypeCounts(type_id=s[1:], available=r["available"], held=int(r["held"]), sold=int(r["sold"]))
            for s, r in rows.items()
            if s[0] == QUOTA
        ]
        return StockFrame(
            event_id=event_id, epoch=self._catalogue.layout(event_id).redis_epoch if epoch is None else epoch,
            version=version or at_ms, ready=ready, at_ms=at_ms, sections=sections, types=types, holders_holding=holders,
        )  # fmt: skip
