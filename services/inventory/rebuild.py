"""Filling a gate from the ledger, and noticing within a fraction of a second that one must be filled: it or one of its
keys is missing, another process of the engine filled it, or the ledger is ahead.

A rebuild waits alone for every batch under way, raises the gate's epoch, commits, closes the gate, and only then reads
the ledger: whatever an older gate allowed is either in what it reads or refused. Two at once are harmless: the lower
epoch is refused by every fill script.
"""

import asyncio
import itertools
import logging
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.gate import Gate, as_hold, load
from services.inventory.keys import Keys
from services.inventory.layout import Catalogue, Layout
from services.inventory.metrics import GATES_READY, REBUILD_SECONDS, REBUILDS
from services.inventory.stocktake import gate_counts, take_stock
from shared.logs import data
from shared.lua import word
from shared.postgres import statement
from shared.redis import ENGINE_AWAY, identities, near

log = logging.getLogger("onsale.inventory")
FENCE_ALONE = statement(__package__, "fence_alone")
RAISE_EPOCH = text(
    "UPDATE inventory.event SET gate_epoch = greatest(gate_epoch, :gate_epoch) + 1 "
    "WHERE event_id = :event_id AND gate_epoch = :seen RETURNING gate_epoch"
)
CHUNK = 500
FILLING_MAX_MS = 5_000
T = TypeVar("T")

BEGIN, SECTION, HOLDS, USAGE, REVOKED, OPEN = map(
    load, ("fill_begin", "fill_section", "fill_holds", "fill_usage", "fill_revoked", "open")
)


class Watcher:
    """Trusts a gate only while the process that filled it still answers and the ledger is not ahead of it."""

    def __init__(self, engine: AsyncEngine, gate: Gate, catalogue: Catalogue) -> None:
        self._engine, self._gate, self._catalogue = engine, gate, catalogue
        self.ready_since_s: dict[str, float] = {}
        self._one_look = asyncio.Lock()

    async def look(self) -> None:
        """One turn: rebuilds every gate that is missing, older than the ledger, or filled by another process."""
        async with self._one_look:
            await self._look()

    async def _look(self) -> None:
        await self._catalogue.refresh()
        layouts = self._catalogue.layouts()
        filled_by = await identities(self._gate.redis, (Keys.of(layout.event_id).gate for layout in layouts))
        lost: set[str | None] = {None}
        for layout in layouts:
            engine = filled_by.get(Keys.of(layout.event_id).gate)
            try:
                if engine in lost or engine is None:
                    self.ready_since_s.pop(layout.event_id, None)
                elif not await self._trusted(layout, engine):
                    self.ready_since_s.pop(layout.event_id, None)
                    await self._rebuild(layout, engine)
            except ENGINE_AWAY:
                lost.add(engine)
                self.ready_since_s.pop(layout.event_id, None)
        GATES_READY.set(len(self.ready_since_s))

    async def _trusted(self, layout: Layout, engine: str) -> bool:
        """True also while somebody else is filling it."""
        keys = Keys.of(layout.event_id)
        key, parts = keys.gate, keys.parts(layout.seated)
        pipe = self._gate.redis.pipeline(transaction=False)
        pipe.hmget(key, "ready", "engine", "epoch", "filling_at")
        pipe.exists(*parts)
        (ready, filled_by, epoch, filling_at), there = await pipe.execute()
        is_whole = there == len(parts)
        if is_whole and ready == b"1" and filled_by == engine.encode() and int(epoch or 0) == layout.gate_epoch:
            self.ready_since_s.setdefault(layout.event_id, time.monotonic())
            return True
        seconds, _ = await (await near(self._gate.redis, key)).time()
        filling_ms = seconds * 1000 + self._gate.clock_offset_ms - int(filling_at or 0)
        return ready == b"0" and int(epoch or 0) == layout.gate_epoch and filling_ms < FILLING_MAX_MS

    async def _rebuild(self, layout: Layout, engine: str) -> None:
        started = time.monotonic()
        epoch = await raise_epoch(self._engine, self._gate, layout.event_id, seen=layout.gate_epoch)
        if epoch is None:
            return
        filled = await fill(self._engine, self._gate, layout, epoch, engine)
        if filled:
            REBUILDS.inc()
            REBUILD_SECONDS.observe(time.monotonic() - started)
            took_ms = round((time.monotonic() - started) * 1000)
            level = logging.INFO if layout.gate_epoch <= 1 else logging.WARNING  # the first filling is no news
            log.log(level, "gate.filled", extra=data(event_id=layout.event_id, epoch=epoch, took_ms=took_ms))
            await self._catalogue.refresh()
            self.ready_since_s[layout.event_id] = time.monotonic()


async def raise_epoch(engine: AsyncEngine, gate: Gate, event_id: str, *, seen: int) -> int | None:
    """The new epoch, or nothing when somebody else raised it first. From its commit on the ledger refuses whatever the
    gate still lets pass; the first step of filling closes it.
    """
    keys = Keys.of(event_id)
    gate_epoch = int(await gate.redis.hget(keys.gate, "epoch") or 0)
    async with engine.begin() as connection:
        await connection.execute(FENCE_ALONE, {"event_id": event_id})
        values = {"event_id": event_id, "gate_epoch": gate_epoch, "seen": seen}
        epoch: int | None = (await connection.execute(RAISE_EPOCH, values)).scalar()
    return epoch


async def fill(engine: AsyncEngine, gate: Gate, layout: Layout, epoch: int, engine_id: str) -> bool:
    """Writes the ledger's stock into the gate and opens it; False when a higher epoch came first."""
    redis, keys = gate.redis, Keys.of(layout.event_id)
    marked = keys.only("gate", "counts", "holds", "deadlines", "usage", "revoked")
    emptied = [keys.dirty, *(keys.map + section_id for section_id in layout.sections)]
    done = [await BEGIN(redis, **marked, emptied=emptied, epoch=epoch, clock_offset_ms=gate.clock_offset_ms)]
    stock = await take_stock(engine, layout.event_id)
    some = keys.only("gate", "counts", "dirty", "map")
    calls = [{**some, "epoch": epoch, **gate_counts(s, section)} for s, section in stock.sections.items()]
    for chunk in _chunks(calls, 20):
        done += await SECTION.many(redis, chunk)
    some = keys.only("gate", "holds", "deadlines", "usage")
    for holds in _chunks(map(as_hold, stock.live), CHUNK):
        done.append(await HOLDS(redis, **some, epoch=epoch, listed=[part for hold in holds for part in hold]))
    some = keys.only("gate", "usage")
    for usage in _chunks(stock.usage.items(), CHUNK):
        done.append(await USAGE(redis, **some, epoch=epoch, tickets=[part for pair in usage for part in pair]))
    some = keys.only("gate", "revoked")
    for passes in _chunks(stock.revoked, CHUNK):
        flat = [part for jti, at_ms in passes for part in (at_ms, jti)]
        done.append(await REVOKED(redis, **some, epoch=epoch, passes=flat))
    await gate.raise_floor(layout.event_id, stock.pass_floor)
    parts, version = keys.parts(layout.seated), stock.version
    done.append(await OPEN(redis, gate=keys.gate, parts=parts, epoch=epoch, engine=engine_id, stock_version=version))
    return all(word(reply) == "done" for reply in done)


def _chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(items)
    while chunk := list(itertools.islice(rest, size)):
        yield chunk
