"""Rebuild an event's stock in Redis from PostgreSQL, and detect within a fraction of a second that it is needed: a key
is missing, another Redis process has the data, or PostgreSQL has a newer epoch.

A rebuild takes the exclusive lock, so it waits for every batch under way; it raises the epoch in PostgreSQL, closes
Redis and only then reads the stock. What an older Redis granted is either in what it reads or refused by the epoch. Two
rebuilds at once are harmless: every rebuild script refuses the lower epoch.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.layout.layout import EventCache, Layout
from services.inventory.metrics import REBUILD_SECONDS, REBUILDS, REDIS_STOCK_READY
from services.inventory.redis_keys import Keys
from services.inventory.redis_stock.client import (
    EVENTS_PER_ROUND_TRIP,
    ROWS_PER_SCRIPT,
    RedisStock,
    follow_calls,
    restored,
)
from services.inventory.store.snapshot import StockSnapshot, read_stock, section_change
from shared.concurrency.background import Quiet, stop, wake
from shared.concurrency.coalescing import chunks
from shared.postgres.engine import statement
from shared.redis.client import REDIS_AWAY, Argument, RedisError, identities, node_for_key, reply_status
from shared.runtime.logging import get_logger

log = get_logger("onsale.inventory")
EXCLUSIVE_LOCK = statement(__package__, "exclusive_lock")
RAISE_EPOCH = text(
    "UPDATE inventory.event SET redis_epoch = greatest(redis_epoch, :redis_epoch) + 1 "
    "WHERE event_id = :event_id AND redis_epoch = :expected RETURNING redis_epoch"
)
CALLS_PER_ROUND_TRIP = 4
CHECK_QUIET_S = 4.0
REBUILD_LEASE_MS, RENEW_INTERVAL_S = 5_000, 1.0  # a rebuild owns the event while it renews


class RedisStockMonitor:
    """Trusts an event's stock while it is complete, in the Redis process that was filled, and of the current epoch."""

    def __init__(self, db: AsyncEngine, redis_stock: RedisStock, catalogue: EventCache) -> None:
        self._db, self._redis_stock, self._catalogue = db, redis_stock, catalogue
        self.ready_since_s: dict[str, float] = {}
        self._lock = asyncio.Lock()

    async def check(self) -> Quiet | None:
        """Rebuilds every event whose stock is not trusted, one event after the other. Quiet if all were trusted."""
        async with self._lock:
            before = len(self.ready_since_s)
            await self._check()
        return Quiet(CHECK_QUIET_S) if before == len(self.ready_since_s) == len(self._catalogue.layouts()) else None

    async def _check(self) -> None:
        await self._catalogue.refresh()
        layouts = self._catalogue.layouts()
        owners = await identities(self._redis_stock.redis, (Keys.of(layout.event_id).meta for layout in layouts))
        lost: set[str | None] = {None}
        trusted = await self._trusted_events(layouts, owners)
        for layout in layouts:
            redis_instance_id = owners.get(Keys.of(layout.event_id).meta)
            if layout.event_id in trusted:
                self.ready_since_s.setdefault(layout.event_id, time.monotonic())
                continue
            try:
                if redis_instance_id in lost or redis_instance_id is None:
                    self.ready_since_s.pop(layout.event_id, None)
                elif not await self._is_trusted(layout, redis_instance_id):
                    self.ready_since_s.pop(layout.event_id, None)
                    await self._rebuild(layout, redis_instance_id)
            except REDIS_AWAY:
                lost.add(redis_instance_id)
                self.ready_since_s.pop(layout.event_id, None)
        REDIS_STOCK_READY.set(len(self.ready_since_s))

    async def _trusted_events(self, layouts: Iterable[Layout], owners: Mapping[str, str]) -> set[str]:
        """Events whose stock is complete, many per round trip; none of a Redis node that does not answer."""
        trusted: set[str] = set()
        for some in chunks(layouts, EVENTS_PER_ROUND_TRIP):
            pipe = self._redis_stock.redis.pipeline(transaction=False)
            for layout in some:
                _queue_checks(pipe, layout)
            with suppress(RedisError):
                answers = await pipe.execute()
                for layout, meta, existing in zip(some, answers[::2], answers[1::2], strict=True):
                    if _is_complete(layout, meta, existing, owners.get(Keys.of(layout.event_id).meta)):
                        trusted.add(layout.event_id)
        return trusted

    async def _is_trusted(self, layout: Layout, redis_instance_id: str) -> bool:
        """True also while another process rebuilds it."""
        key = Keys.of(layout.event_id).meta
        pipe = self._redis_stock.redis.pipeline(transaction=False)
        _queue_checks(pipe, layout)
        meta, existing = await pipe.execute()
        ready, _, epoch, rebuild_renewed_at = meta
        if _is_complete(layout, meta, existing, redis_instance_id):
            self.ready_since_s.setdefault(layout.event_id, time.monotonic())
            return True
        seconds, _ = await (await node_for_key(self._redis_stock.redis, key)).time()
        since_renewal_ms = seconds * 1000 + self._redis_stock.clock_offset_ms - int(rebuild_renewed_at or 0)
        return ready == b"0" and int(epoch or 0) == layout.redis_epoch and abs(since_renewal_ms) < REBUILD_LEASE_MS

    async def _rebuild(self, layout: Layout, redis_instance_id: str) -> None:
        started = time.monotonic()
        epoch = await raise_epoch(self._db, self._redis_stock, layout.event_id, expected=layout.redis_epoch)
        if epoch is None:
            return
        is_rebuilt = await rebuild(self._db, self._redis_stock, layout, epoch, redis_instance_id)
        if is_rebuilt:
            REBUILDS.inc()
            REBUILD_SECONDS.observe(time.monotonic() - started)
            took_ms = round((time.monotonic() - started) * 1000)
            level = logging.INFO if layout.redis_epoch <= 1 else logging.WARNING  # a first build is no incident
            log.log(level, "redis_stock.rebuilt", event_id=layout.event_id, epoch=epoch, took_ms=took_ms)
            await self._catalogue.refresh()
            self.ready_since_s[layout.event_id] = time.monotonic()
            wake("inventory")  # its holds have deadlines that no loop has seen


def _queue_checks(pipe: Any, layout: Layout) -> None:
    """Queues the commands whose replies `_is_complete` reads."""
    keys = Keys.of(layout.event_id)
    pipe.hmget(keys.meta, "ready", "redis_instance_id", "epoch", "rebuild_renewed_at")
    pipe.exists(*keys.parts(layout.seated))


def _is_complete(layout: Layout, meta: Sequence[bytes | None], existing: int, redis_instance_id: str | None) -> bool:
    ready, owner, epoch, _ = meta
    return (
        existing == len(Keys.of(layout.event_id).parts(layout.seated))
        and ready == b"1"
        and redis_instance_id is not None
        and owner == redis_instance_id.encode()
        and int(epoch or 0) == layout.redis_epoch
    )


async def raise_epoch(db: AsyncEngine, redis_stock: RedisStock, event_id: str, *, expected: int) -> int | None:
    """The new epoch, or None if another process raised it first. From its commit on PostgreSQL refuses what Redis still
    grants; the first step of the rebuild closes Redis.
    """
    keys = Keys.of(event_id)
    redis_epoch = int(await redis_stock.redis.hget(keys.meta, "epoch") or 0)
    async with db.begin() as connection:
        await connection.execute(EXCLUSIVE_LOCK, {"event_id": event_id})
        values = {"event_id": event_id, "redis_epoch": redis_epoch, "expected": expected}
        epoch: int | None = (await connection.execute(RAISE_EPOCH, values)).scalar()
    return epoch


async def rebuild(db: AsyncEngine, redis_stock: RedisStock, layout: Layout, epoch: int, redis_instance_id: str) -> bool:
    """Writes PostgreSQL's stock into Redis and marks it ready; False if a higher epoch came first."""
    event_id, keys, clock = layout.event_id, Keys.of(layout.event_id), {"clock_offset_ms": redis_stock.clock_offset_ms}
    others = [keys.dirty, *(keys.map + section_id for section_id in layout.sections)]
    done = [await redis_stock.call("rebuild_begin", event_id, emptied=others, epoch=epoch, **clock)]
    async with _renewing(redis_stock, event_id, epoch):
        stock = await read_stock(db, event_id)
        done += await _write_snapshot(redis_stock, event_id, epoch, stock)
    state: dict[str, Argument] = {"redis_instance_id": redis_instance_id, "stock_version": stock.version}
    done.append(
        await redis_stock.call("finish_rebuild", event_id, epoch=epoch, parts=keys.parts(layout.seated), **state)
    )
    return all(reply_status(reply) == "done" for reply in done)


@asynccontextmanager
async def _renewing(redis_stock: RedisStock, event_id: str, epoch: int) -> AsyncIterator[None]:
    """Renews the rebuild's lease: other processes wait for it, and not much longer if this one dies.

    The lease of a rebuild that failed must not be renewed: it would keep the event closed.
    """
    since_s = time.monotonic()

    async def renew() -> None:
        while True:
            await asyncio.sleep(RENEW_INTERVAL_S)
            with suppress(*REDIS_AWAY):
                offset_ms = redis_stock.clock_offset_ms
                await redis_stock.call("rebuild_renew", event_id, epoch=epoch, clock_offset_ms=offset_ms)
            elapsed_ms = round((time.monotonic() - since_s) * 1000)
            log.info("redis_stock.rebuilding", event_id=event_id, epoch=epoch, elapsed_ms=elapsed_ms)

    renewing = asyncio.create_task(renew(), name="inventory.renew")
    try:
        yield
    finally:
        await stop([renewing])


async def _write_snapshot(redis_stock: RedisStock, event_id: str, epoch: int, stock: StockSnapshot) -> list[Any]:
    """Writes the snapshot in as many calls as it takes, a few per round trip; their replies. The next are prepared
    while Redis works on the last.
    """
    replies = list[Any]()

    async def send(verb: str, calls: Iterator[dict[str, Argument]]) -> None:
        rest = chunks(calls, CALLS_PER_ROUND_TRIP)

        async def send_some() -> None:
            for some in rest:
                named = [redis_stock.named(verb, event_id, **call) for call in some]
                replies.extend(await redis_stock.scripts[verb].many(redis_stock.redis, named))

        await asyncio.gather(send_some(), send_some())

    sections, holds = map(section_change, stock.sections.items()), map(restored, stock.live)
    filling = follow_calls(holds, places=sections, tickets=stock.usage().items(), epoch=epoch, rebuild=True)
    passes = chunks(stock.revoked_passes, ROWS_PER_SCRIPT)
    revoked: Iterator[dict[str, Argument]] = (
        {"epoch": epoch, "passes": [part for jti, at_ms in some for part in (at_ms, jti)]} for some in passes
    )
    await send("follow", filling)
    await send("rebuild_revoked", revoked)
    await redis_stock.set_min_pass_epoch(event_id, stock.min_pass_epoch)
    return replies
