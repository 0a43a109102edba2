"""Gate against ledger: what differs, told so that two looks at the same fault give the same words even under a crowd.

The two are read a moment apart, so a hold or a sale on its way is seen by one alone. Therefore seats are told with the
reservation that has them, and counts are compared with the gate's own holds and by how far they are off: what is on its
way never tells the same twice.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from services.inventory.catalogue.layout import Layout
from services.inventory.redis_keys import EPOCH, Keys
from services.inventory.reservations.selection import read_selection
from services.inventory.stock.snapshot import MARKS, SectionStock, StockSnapshot
from shared.redis.client import Redis

Difference = tuple[str, str, str]  # what, what is said, what it should be


@dataclass(frozen=True, slots=True)
class RedisHold:
    """A live reservation as the gate has it."""

    holder: str
    seats: tuple[tuple[str, int], ...]
    ga: dict[str, int]

    @property
    def quantity(self) -> int:
        return len(self.seats) + sum(self.ga.values())


@dataclass(frozen=True, slots=True)
class RedisStockState:
    """What the gate says: maps by section, counts by `section:name`, live holds by id, tickets by holder. It is `ready`
    only with all its parts.
    """

    ready: bool
    maps: dict[str, str]
    counts: dict[str, int]
    holds: dict[str, RedisHold]
    usage: dict[str, int]


@dataclass(slots=True)
class _Known:
    """What gate and ledger must add up to: the holds that count, by section and by holder; sales not followed yet."""

    held: Counter[str] = field(default_factory=Counter)
    by_holder: Counter[str] = field(default_factory=Counter)
    behind: Counter[str] = field(default_factory=Counter)
    behind_of: Counter[str] = field(default_factory=Counter)
    owner: dict[tuple[str, int], str] = field(default_factory=dict)
    db_owner: dict[tuple[str, int], str] = field(default_factory=dict)


async def read_redis_stock(redis: Redis, event_id: str, layout: Layout) -> RedisStockState:
    """In one transaction of the engine, so that no script comes between."""
    keys = Keys.of(event_id)
    seated = layout.seated
    parts = keys.parts(seated)
    pipe = redis.pipeline(transaction=True)
    pipe.hget(keys.meta, "ready")
    pipe.exists(*parts)
    pipe.hgetall(keys.counts)
    pipe.hgetall(keys.holds)
    pipe.hgetall(keys.usage)
    for section_id in seated:
        pipe.get(keys.map + section_id)
    replies = await pipe.execute()
    return await asyncio.to_thread(_redis_stock_state, seated, len(parts), replies)  # many holds take a while to read


def _redis_stock_state(seated: Sequence[str], parts: int, replies: list[Any]) -> RedisStockState:
    ready, there, counts, holds, usage, *maps = replies
    return RedisStockState(
        ready == b"1" and there == parts,
        {s: (marks or b"").decode() for s, marks in zip(seated, maps, strict=True)},
        {k.decode(): int(v) for k, v in counts.items() if k != EPOCH},
        {k.decode(): _hold(v) for k, v in holds.items() if k != EPOCH},
        {k.decode()[2:]: int(v) for k, v in usage.items() if k.startswith(b"t:")},
    )


def _hold(raw: bytes) -> RedisHold:
    hold = orjson.loads(raw)
    seats, ga = read_selection(hold["basket"])
    return RedisHold(hold["holder"], tuple(sorted(seats)), ga)


async def compare(
    redis_stock: RedisStockState, stock: StockSnapshot, *, lost: frozenset[str] | None = None
) -> list[Difference]:
    """All `differences`; who sells is not kept waiting while very many holds are compared."""
    return await asyncio.to_thread(lambda: list(differences(redis_stock, stock, lost=lost)))


def differences(
    redis_stock: RedisStockState, stock: StockSnapshot, *, lost: frozenset[str] | None = None
) -> Iterator[Difference]:
    """Every place, count, hold and holder that gate and ledger see differently.

    `lost`: reservations known to be missing in the gate for a while; nothing given means all that are missing. A live
    reservation that is missing for the first time may have been made between the two readings.
    """
    live = {record.reservation_id: record for record in stock.live}
    missing = live.keys() - redis_stock.holds.keys()
    known = _known(redis_stock, stock, missing if lost is None else missing & lost)
    for section_id, section in stock.sections.items():
        yield from _seats(section_id, redis_stock.maps.get(section_id, ""), section, known)
        yield from _counts(section_id, redis_stock, section, known)
    for reservation_id in missing:
        yield f"hold {reservation_id}", "missing", "there"
    for reservation_id, hold in redis_stock.holds.items():
        record = live.get(reservation_id)
        if record is None:
            yield f"hold {reservation_id}", "there", "missing"
        elif (tuple(record.seats), dict(record.ga)) != (hold.seats, hold.ga):
            yield f"basket {reservation_id}", f"{hold.seats} {hold.ga}", f"{record.seats} {record.ga}"
    for holder in stock.bought.keys() | redis_stock.usage.keys() | known.by_holder.keys():
        should_be = known.by_holder[holder] + stock.bought.get(holder, 0) - known.behind_of[holder]
        if (seen := redis_stock.usage.get(holder, 0)) != should_be:
            yield f"usage {holder}", str(seen), str(should_be)


def _known(redis_stock: RedisStockState, stock: StockSnapshot, lost: set[str] | frozenset[str]) -> _Known:
    known = _Known()
    for reservation_id, hold in redis_stock.holds.items():
        known.held.update(hold.ga)
        known.by_holder[hold.holder] += hold.quantity
        known.owner |= dict.fromkeys(hold.seats, reservation_id)
        if reservation_id in stock.sold_since:
            known.behind.update(hold.ga)
            known.behind_of[hold.holder] += hold.quantity
    for record in stock.live:
        known.db_owner |= dict.fromkeys(record.seats, record.reservation_id)
        if record.reservation_id in lost:
            known.held.update(dict(record.ga))
            known.by_holder[record.holder] += record.quantity
    return known


def _seats(section_id: str, marks: str, section: SectionStock, known: _Known) -> Iterator[Difference]:
    """Seat by seat, each mark with the reservation behind it."""
    if marks == section.marks:
        return
    for position, mark in enumerate(section.marks):
        if (seen := marks[position : position + 1]) != mark:
            place = section_id, position
            by_gate, by_ledger = known.owner.get(place, ""), known.db_owner.get(place, "")
            yield f"seat {section_id} {position}", f"{seen}:{by_gate}", f"{mark}:{by_ledger}"


def _counts(
    section_id: str, redis_stock: RedisStockState, section: SectionStock, known: _Known
) -> Iterator[Difference]:
    """A seated section is compared with its own map; general admission with the gate's holds and the ledger's sales."""
    if section.marks:
        marks = redis_stock.maps.get(section_id, "")
        wanted = {name: marks.count(mark) for name, mark in MARKS.items()}
    else:
        held, sold = known.held[section_id], section.sold - known.behind[section_id]
        left = max(0, section.capacity - section.blocked - held - sold)
        wanted = {"available": left, "held": held, "sold": sold, "blocked": section.blocked}
    for name, n in wanted.items():
        if off := redis_stock.counts.get(f"{section_id}:{name}", 0) - n:
            yield f"count {section_id} {name}", f"{off:+d}", "+0"
