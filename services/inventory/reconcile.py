"""Gate against ledger, without stopping sales: only what differs in two looks, five seconds apart, is touched.

A difference seen once is usually a change on its way. The ledger wins; the engine does the correcting in one step and
only where the gate still says what was seen.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.endings import settle
from services.inventory.gate import Gate
from services.inventory.keys import Keys
from services.inventory.layout import Catalogue, Layout
from services.inventory.metrics import DRIFT
from services.inventory.stocktake import MARKS, Stock, take_stock
from shared.logs import data
from shared.redis import ENGINE_AWAY, Redis

log = logging.getLogger("onsale.inventory")
AGE_S = 5.0
Difference = tuple[str, str, str]  # what, gate's word, ledger's word


@dataclass(frozen=True, slots=True)
class GateStock:
    """What the gate says: maps by section, counts by `section:name`, ids of live holds, tickets by holder."""

    ready: bool
    maps: dict[str, str]
    counts: dict[str, int]
    holds: frozenset[str]
    usage: dict[str, int]


@dataclass(slots=True)
class _Look:
    """What differed, and when it was first looked at."""

    at_s: float
    differences: set[Difference] = field(default_factory=set)


async def read_gate(redis: Redis, event_id: str, layout: Layout) -> GateStock:
    """In one transaction of the engine, so that no script comes between."""
    keys = Keys.of(event_id)
    seated = [section.section_id for section in layout.sections.values() if section.kind == "seated"]
    pipe = redis.pipeline(transaction=True)
    pipe.hget(keys.gate, "ready")
    pipe.hgetall(keys.counts)
    pipe.hkeys(keys.holds)
    pipe.hgetall(keys.usage)
    for section_id in seated:
        pipe.get(keys.map + section_id)
    ready, counts, holds, usage, *maps = await pipe.execute()
    return GateStock(
        ready == b"1",
        {s: (marks or b"").decode() for s, marks in zip(seated, maps, strict=True)},
        {k.decode(): int(v) for k, v in counts.items()},
        frozenset(h.decode() for h in holds),
        {k.decode()[2:]: int(v) for k, v in usage.items() if k.startswith(b"t:")},
    )


def differences(gate: GateStock, stock: Stock) -> Iterator[Difference]:
    """Every place, count, hold and holder that gate and ledger see differently. A seated section is compared seat by
    seat, and its counts with its own map.
    """
    for section_id, section in stock.sections.items():
        marks = gate.maps.get(section_id, "")
        if marks != section.marks:
            for position, mark in enumerate(section.marks):
                seen = marks[position : position + 1]
                if seen != mark:
                    yield f"seat {section_id} {position}", seen, mark
        for name, mark in MARKS.items():
            counted = marks.count(mark) if section.marks else getattr(section, name)
            if (seen_n := gate.counts.get(f"{section_id}:{name}", 0)) != counted:
                yield f"count {section_id} {name}", str(seen_n), str(counted)
    live = {record.reservation_id for record in stock.live}
    for reservation_id in live ^ gate.holds:
        inside = reservation_id in gate.holds
        yield f"hold {reservation_id}", "there" if inside else "missing", "missing" if inside else "there"
    for holder in stock.usage.keys() | gate.usage.keys():
        seen_n, ledger_n = gate.usage.get(holder, 0), stock.usage.get(holder, 0)
        if seen_n != ledger_n:
            yield f"usage {holder}", str(seen_n), str(ledger_n)


class Reconciler:
    """Looks at every event in turn and remembers what differed the last time."""

    def __init__(
        self, engine: AsyncEngine, gate: Gate, catalogue: Catalogue, *, ready_since_s: Mapping[str, float],
        interval_s: float, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._engine, self._gate, self._catalogue = engine, gate, catalogue
        self._ready_since_s, self._interval_s, self._clock = ready_since_s, interval_s, clock
        self._last: dict[str, _Look] = {}

    async def turn(self) -> None:
        """Looks where it is time: 5 s after a gate opened, again 5 s after a look that found something, else every
        interval.
        """
        for layout in self._catalogue.layouts():
            ready_s = self._ready_since_s.get(layout.event_id)
            if ready_s is None or self._clock() - ready_s < AGE_S:
                continue
            last = self._last.get(layout.event_id)
            pause_s = AGE_S if last and last.differences else self._interval_s
            if last is None or last.at_s < ready_s or self._clock() - last.at_s >= pause_s:
                try:
                    await self.look(layout)
                except ENGINE_AWAY:
                    self._last.pop(layout.event_id, None)

    async def look(self, layout: Layout) -> dict[str, int]:
        """One look: what differs, how much of that is old and unchanged, and what was corrected."""
        gate = await read_gate(self._gate.redis, layout.event_id, layout)
        if not gate.ready:
            return {"differences": 0, "old": 0, "corrected": 0}
        stock = await take_stock(self._engine, layout.event_id)
        found = set(differences(gate, stock))
        last = self._last.get(layout.event_id)
        old: set[Difference] = set()
        if last and self._clock() - last.at_s >= AGE_S:
            old = found & last.differences
        corrected = await self._correct(layout, stock, old) if old else 0
        if old:
            DRIFT.labels("reconcile").inc(len(old))
            log.warning("drift.corrected", extra=data(event_id=layout.event_id, old=len(old), corrected=corrected))
        if last is None or not found or self._clock() - last.at_s >= AGE_S:
            self._last[layout.event_id] = _Look(self._clock(), found - old)
        return {"differences": len(found), "old": len(old), "corrected": corrected}

    async def _correct(self, layout: Layout, stock: Stock, old: set[Difference]) -> int:
        """Seats and counts to the ledger's word; holds by asking the ledger what they are; missing ones again."""
        gone = [what.split(" ")[1] for what, seen, _ in sorted(old) if what.startswith("hold ") and seen == "there"]
        now_ms, _ = await self._gate.due(layout.event_id, count_max=1)
        if gone and now_ms:
            await settle(self._engine, self._gate, layout.event_id, gone, now_ms=now_ms)
            gate = await read_gate(self._gate.redis, layout.event_id, layout)
            old = old & set(differences(gate, stock))  # their places went with them: once is enough
        places: list[str | int] = []
        for what, seen, ledger in sorted(old):
            kind, name, *rest = what.split(" ")
            if kind == "seat":
                places += [name, int(rest[0]), seen, ledger]
            elif kind == "count":
                places += [name, "count", MARKS[rest[0]], int(ledger) - int(seen)]
        corrected = await self._gate.correct(layout.event_id, places)
        missing = [r for r in stock.live if (f"hold {r.reservation_id}", "missing", "there") in old]
        usage = [(what.split(" ", 1)[1], int(ledger)) for what, _, ledger in old if what.startswith("usage ")]
        await self._gate.remember(layout.event_id, missing, usage)
        return corrected + len(gone) + len(missing) + len(usage)
