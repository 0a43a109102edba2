"""Filling a gate from the ledger, and noticing within a fraction of a second that one must be filled: it or one of its
keys is missing, another process of the engine filled it, or the ledger is ahead.

A rebuild waits alone for every batch under way, raises the gate's epoch, commits, closes the gate, and only then reads
the ledger: whatever an older gate allowed is either in what it reads or refused. Two at once are harmless: the lower
epoch is refused by every fill script.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.catalogue.layout import EventCache, Layout
from services.inventory.metrics import GATES_READY, REBUILD_SECONDS, REBUILDS
from services.inventory.redis_keys import Keys
from services.inventory.redis_stock.client import EVENTS_AT_ONCE, FILLED_AT_ONCE, RedisStock, as_hold, load
from services.inventory.stock.snapshot import StockSnapshot, gate_counts, read_stock
from shared.postgres.engine import statement
from shared.redis.client import REDIS_AWAY, Redis, RedisError, identities, near
from shared.redis.scripts import Argument, Script, Value, word
from shared.runtime.group_commit import chunks
from shared.runtime.logging import data

log = logging.getLogger("onsale.inventory")
EXCLUSIVE_LOCK = statement(__package__, "fence_alone")
RAISE_EPOCH = text(
    "UPDATE inventory.event SET redis_epoch = greatest(redis_epoch, :redis_epoch) + 1 "
    "WHERE event_id = :event_id AND redis_epoch = :seen RETURNING redis_epoch"
)
CALLS_AT_ONCE = 4
FILLING_MAX_MS, RENEWED_EVERY_S = 5_000, 1.0  # a filling lasts as long as it is renewed

BEGIN, RENEW, SECTION, HOLDS, USAGE, REVOKED, OPEN = map(
    load, ("fill_begin", "fill_renew", "fill_section", "fill_holds", "fill_usage", "fill_revoked", "open")
)


class RedisStockMonitor:
    """Trusts a gate only while the process that filled it still answers and the ledger is not ahead of it."""

    def __init__(self, db: AsyncEngine, redis_stock: RedisStock, catalogue: EventCache) -> None:
        self._db, self._redis_stock, self._catalogue = db, redis_stock, catalogue
        self.ready_since_s: dict[str, float] = {}
        self._one_look = asyncio.Lock()

    async def check(self) -> None:
        """One turn: rebuilds every gate that is missing, older than the ledger, or filled by another process."""
        async with self._one_look:
            await self._look()

    async def _look(self) -> None:
        await self._catalogue.refresh()
        layouts = self._catalogue.layouts()
        filled_by = await identities(self._redis_stock.redis, (Keys.of(layout.event_id).meta for layout in layouts))
        lost: set[str | None] = {None}
        trusted = await self._all_trusted(layouts, filled_by)
        for layout in layouts:
            redis_instance_id = filled_by.get(Keys.of(layout.event_id).meta)
            if layout.event_id in trusted:
                self.ready_since_s.setdefault(layout.event_id, time.monotonic())
                continue
            try:
                if redis_instance_id in lost or redis_instance_id is None:
                    self.ready_since_s.pop(layout.event_id, None)
                elif not await self._trusted(layout, redis_instance_id):
                    self.ready_since_s.pop(layout.event_id, None)
                    await self._rebuild(layout, redis_instance_id)
            except REDIS_AWAY:
                lost.add(redis_instance_id)
                self.ready_since_s.pop(layout.event_id, None)
        GATES_READY.set(len(self.ready_since_s))

    async def _all_trusted(self, layouts: Iterable[Layout], filled_by: Mapping[str, str]) -> set[str]:
        """Events whose gate is whole and of this process: many are asked in one round trip. Of a process that does not
        answer there are none.
        """
        trusted: set[str] = set()
        for some in chunks(layouts, EVENTS_AT_ONCE):
            pipe = self._redis_stock.redis.pipeline(transaction=False)
            for layout in some:
                _ask(pipe, layout)
            with suppress(RedisError):
                answers = await pipe.execute()
                for layout, redis_stock, there in zip(some, answers[::2], answers[1::2], strict=True):
                    if _is_whole(layout, redis_stock, there, filled_by.get(Keys.of(layout.event_id).meta)):
                        trusted.add(layout.event_id)
        return trusted

    async def _trusted(self, layout: Layout, redis_instance_id: str) -> bool:
        """True also while somebody else is filling it."""
        key = Keys.of(layout.event_id).meta
        pipe = self._redis_stock.redis.pipeline(transaction=False)
        _ask(pipe, layout)
        redis_stock, there = await pipe.execute()
        ready, _, epoch, filling_at = redis_stock
        if _is_whole(layout, redis_stock, there, redis_instance_id):
            self.ready_since_s.setdefault(layout.event_id, time.monotonic())
            return True
        seconds, _ = await (await near(self._redis_stock.redis, key)).time()
        filling_ms = seconds * 1000 + self._redis_stock.clock_offset_ms - int(filling_at or 0)
        return ready == b"0" and int(epoch or 0) == layout.redis_epoch and abs(filling_ms) < FILLING_MAX_MS

    async def _rebuild(self, layout: Layout, redis_instance_id: str) -> None:
        started = time.monotonic()
        epoch = await raise_epoch(self._db, self._redis_stock, layout.event_id, seen=layout.redis_epoch)
        if epoch is None:
            return
        filled = await fill(self._db, self._redis_stock, layout, epoch, redis_instance_id)
        if filled:
            REBUILDS.inc()
            REBUILD_SECONDS.observe(time.monotonic() - started)
            took_ms = round((time.monotonic() - started) * 1000)
            level = logging.INFO if layout.redis_epoch <= 1 else logging.WARNING  # the first filling is no news
            log.log(level, "gate.filled", extra=data(event_id=layout.event_id, epoch=epoch, took_ms=took_ms))
            await self._catalogue.refresh()
            self.ready_since_s[layout.event_id] = time.monotonic()


def _ask(pipe: Any, layout: Layout) -> None:
    """The gate's own facts, and how many of its parts are there."""
    keys = Keys.of(layout.event_id)
    pipe.hmget(keys.meta, "ready", "redis_instance_id", "epoch", "filling_at")
    pipe.exists(*keys.parts(layout.seated))


def _is_whole(layout: Layout, redis_stock: Sequence[bytes | None], there: int, redis_instance_id: str | None) -> bool:
    ready, filled_by, epoch, _ = redis_stock
    return (
        there == len(Keys.of(layout.event_id).parts(layout.seated))
        and ready == b"1"
        and redis_instance_id is not None
        and filled_by == redis_instance_id.encode()
        and int(epoch or 0) == layout.redis_epoch
    )


async def raise_epoch(db: AsyncEngine, redis_stock: RedisStock, event_id: str, *, seen: int) -> int | None:
    """The new epoch, or nothing when somebody else raised it first. From its commit on the ledger refuses whatever the
    gate still lets pass; the first step of filling closes it.
    """
    keys = Keys.of(event_id)
    redis_epoch = int(await redis_stock.redis.hget(keys.meta, "epoch") or 0)
    async with db.begin() as connection:
        await connection.execute(EXCLUSIVE_LOCK, {"event_id": event_id})
        values = {"event_id": event_id, "redis_epoch": redis_epoch, "seen": seen}
        epoch: int | None = (await connection.execute(RAISE_EPOCH, values)).scalar()
    return epoch


async def fill(db: AsyncEngine, redis_stock: RedisStock, layout: Layout, epoch: int, redis_instance_id: str) -> bool:
    """Writes the ledger's stock into the gate and opens it; False when a higher epoch came first."""
    redis, keys = redis_stock.redis, Keys.of(layout.event_id)
    marked = keys.only("meta", "counts", "holds", "deadlines", "usage", "revoked")
    emptied = [keys.dirty, *(keys.map + section_id for section_id in layout.sections)]
    done = [await BEGIN(redis, **marked, emptied=emptied, epoch=epoch, clock_offset_ms=redis_stock.clock_offset_ms)]
    async with _renewed(redis_stock, layout.event_id, epoch):
        stock = await read_stock(db, layout.event_id)
        done += await _pour(redis_stock, layout.event_id, epoch, stock)
    parts, version = keys.parts(layout.seated), stock.version
    done.append(
        await OPEN(
            redis, meta=keys.meta, parts=parts, epoch=epoch, redis_instance_id=redis_instance_id, stock_version=version
        )
    )
    return all(word(reply) == "done" for reply in done)


@asynccontextmanager
async def _renewed(redis_stock: RedisStock, event_id: str, epoch: int) -> AsyncIterator[None]:
    """Other watchers leave the gate to us for as long as this lasts, and not much longer if we die in it."""
    since_s = time.monotonic()

    async def renew() -> None:
        while True:
            await asyncio.sleep(RENEWED_EVERY_S)
            with suppress(*REDIS_AWAY):
                key = Keys.of(event_id).meta
                await RENEW(redis_stock.redis, meta=key, epoch=epoch, clock_offset_ms=redis_stock.clock_offset_ms)
            so_far_ms = round((time.monotonic() - since_s) * 1000)
            log.info("gate.filling", extra=data(event_id=event_id, epoch=epoch, so_far_ms=so_far_ms))

    renewing = asyncio.create_task(renew(), name="inventory.renew")
    try:
        yield
    finally:
        renewing.cancel()


async def _pour(redis_stock: RedisStock, event_id: str, epoch: int, stock: StockSnapshot) -> list[Any]:
    """Everything the gate remembers, in as many calls as it takes; what they answered."""
    redis, keys = redis_stock.redis, Keys.of(event_id)
    some: dict[str, Any] = {**keys.only("meta", "counts", "dirty", "map"), "epoch": epoch}
    done = await _send(SECTION, redis, ({**some, **gate_counts(s, x)} for s, x in stock.sections.items()))
    some = {**keys.only("meta", "holds", "deadlines", "usage"), "epoch": epoch}
    done += await _send(HOLDS, redis, ({**some, "listed": flat} for flat in _flat(map(as_hold, stock.live))))
    some = {**keys.only("meta", "usage"), "epoch": epoch}
    done += await _send(USAGE, redis, ({**some, "tickets": flat} for flat in _flat(stock.usage.items())))
    some = {**keys.only("meta", "revoked"), "epoch": epoch}
    revoked = ((at_ms, jti) for jti, at_ms in stock.revoked)
    done += await _send(REVOKED, redis, ({**some, "passes": flat} for flat in _flat(revoked)))
    await redis_stock.set_min_pass_epoch(event_id, stock.min_pass_epoch)
    return done


def _flat(rows: Iterable[Iterable[Value]]) -> Iterator[list[Value]]:
    """As many as one script takes: the engine answers nobody else meanwhile."""
    return ([part for row in some for part in row] for some in chunks(rows, FILLED_AT_ONCE))


async def _send(script: Script, redis: Redis, calls: Iterable[Mapping[str, Argument]]) -> list[Any]:
    """All calls, a few a round trip; the next are made ready while the engine works on the last."""
    rest, replies = chunks(calls, CALLS_AT_ONCE), list[Any]()

    async def send() -> None:
        for some in rest:
            replies.extend(await script.many(redis, some))

    await asyncio.gather(send(), send())
    return replies
