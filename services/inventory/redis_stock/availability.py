"""What is left, shown to everybody: one frame per event, at most four a second, repeated every five seconds.

Sections note themselves as dirty in the scripts that change them, so selling never waits for showing.
"""

import asyncio
import time
from collections.abc import Iterable
from contextlib import suppress
from itertools import compress

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.catalogue.layout import EventCache, Layout
from services.inventory.redis_keys import Keys
from services.inventory.redis_stock.client import EVENTS_AT_ONCE, RedisStock, load
from services.inventory.stock.snapshot import count_sections
from shared.contracts.frames import FRAME_REPEAT_S, SectionCounts, StockFrame, stock_channel
from shared.redis.client import REDIS_AWAY, RedisError
from shared.redis.snapshots import SnapshotPublisher
from shared.runtime.clock import now_ms
from shared.runtime.group_commit import chunks

SHOW = load("show")
HOLDING = text(
    "SELECT count(DISTINCT holder) FROM inventory.reservation "
    "WHERE event_id = :event_id AND status IN ('pending_payment', 'paying')"
)
FRESH_S = 0.25


class AvailabilityPublisher:
    """The latest frame of every event, and its loop."""

    def __init__(
        self, db: AsyncEngine, redis_stock: RedisStock, catalogue: EventCache, showing: SnapshotPublisher
    ) -> None:
        self._db, self._redis_stock, self._catalogue, self._showing = db, redis_stock, catalogue, showing
        self._shown_at_s: dict[str, float] = {}
        self._seen: dict[str, tuple[float, StockFrame]] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._shut: set[str] = (
            set()
        )  # said so; counting a large stock again and again would keep its gate from being filled

    async def publish(self) -> None:
        """One turn: publishes what changed, and what has not been said for a while."""
        layouts = self._catalogue.layouts()
        changed = await self._changed(layouts)
        for layout in layouts:
            due = time.monotonic() - self._shown_at_s.get(layout.event_id, 0.0) > FRAME_REPEAT_S * 0.8
            if not due and layout.event_id not in changed:
                continue
            with suppress(*REDIS_AWAY):  # other events may be with another engine
                frame = await self._frame(layout, force=due, peek=False)
                if frame is not None:
                    await self._showing.publish(stock_channel(layout.event_id), frame)
                    self._shown_at_s[layout.event_id] = time.monotonic()

    async def _changed(self, layouts: Iterable[Layout]) -> set[str]:
        """Events whose stock may have changed since it was shown: many are asked in one round trip."""
        changed: set[str] = set()
        for some in chunks((layout.event_id for layout in layouts), EVENTS_AT_ONCE):
            pipe = self._redis_stock.redis.pipeline(transaction=False)
            for event_id in some:
                pipe.exists(Keys.of(event_id).dirty)
            try:
                changed.update(compress(some, await pipe.execute()))
            except RedisError:
                changed.update(some)  # each is asked by itself: other processes of the engine may answer
        return changed

    async def frame(self, layout: Layout) -> StockFrame:
        """The stock as it was at most a quarter of a second ago: from the gate, or from the ledger while that is not
        ready. Many who ask at once share one look.
        """
        async with self._locks.setdefault(layout.event_id, asyncio.Lock()):
            at_s, frame = self._seen.get(layout.event_id, (0.0, None))
            if frame is None or time.monotonic() - at_s > FRESH_S:
                try:
                    frame = await self._frame(layout, force=True, peek=True)
                except REDIS_AWAY:
                    frame = await self.from_db(layout.event_id, ready=False)
                assert frame is not None
                self._seen[layout.event_id] = (time.monotonic(), frame)
            return frame

    async def _frame(self, layout: Layout, *, force: bool, peek: bool) -> StockFrame | None:
        keys = Keys.of(layout.event_id).only("meta", "counts", "dirty")
        times = {"clock_offset_ms": self._redis_stock.clock_offset_ms, "others_ms": self._redis_stock.others_ms()}
        reply = await SHOW(self._redis_stock.redis, **keys, **times, force=int(force), peek=int(peek))
        if not reply:
            return None
        ready, epoch, version, at_ms, holding, begun, let_go = (int(part) for part in reply[:7])
        if not ready or self._redis_stock.clocks.apart():
            if not peek:
                if layout.event_id in self._shut and not force:
                    return None
                self._shut.add(layout.event_id)
            return await self.from_db(layout.event_id, ready=False, epoch=epoch, version=version)
        self._shut.discard(layout.event_id)
        counts = {key.decode(): int(value) for key, value in zip(reply[7::2], reply[8::2], strict=True)}
        sections = [
            SectionCounts(
                section_id=s, available=max(0, counts.get(f"{s}:available", 0)), held=counts.get(f"{s}:held", 0),
                sold=counts.get(f"{s}:sold", 0), at_ms=at_ms,
            )
            for s in layout.sections
        ]  # fmt: skip
        return StockFrame(
            event_id=layout.event_id, epoch=epoch, version=version, ready=True, at_ms=at_ms, sections=sections,
            holders_holding=holding, holds_begun=begun, holds_let_go=let_go,
        )  # fmt: skip

    async def from_db(
        self, event_id: str, *, ready: bool = True, epoch: int | None = None, version: int | None = None
    ) -> StockFrame:
        """The stock from the ledger's own rows."""
        at_ms = now_ms()
        async with self._db.connect() as connection:
            rows = await count_sections(connection, event_id)
            holding = (await connection.execute(HOLDING, {"event_id": event_id})).scalar_one()
        sections = [
            SectionCounts(section_id=s, available=r["available"], held=int(r["held"]), sold=int(r["sold"]), at_ms=at_ms)
            for s, r in rows.items()
        ]
        return StockFrame(
            event_id=event_id, epoch=self._catalogue.layout(event_id).redis_epoch if epoch is None else epoch,
            version=version or at_ms, ready=ready, at_ms=at_ms, sections=sections, holders_holding=holding,
        )  # fmt: skip
