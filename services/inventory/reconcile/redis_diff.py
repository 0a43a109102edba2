"""The differences between the stock in Redis and in PostgreSQL, in a form that stays the same from pass to pass.

The two are read a moment apart, so a hold or sale under way is in one of them only. To tell such a difference from a
lasting one, a seat is compared together with its reservation, and a count with Redis' own holds, by how far it is off:
a change under way never gives the same difference twice.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from services.inventory.catalogue.layout import Layout
from services.inventory.redis_keys import EPOCH, Keys
from services.inventory.reservations.selection import parse_selection
from services.inventory.stock.snapshot import MARKS, SectionStock, StockSnapshot
from shared.redis.client import Redis

Difference = tuple[str, str, str]  # item, actual, expected; e.g. ("count GA1 held", "+2", "+0")


@dataclass(frozen=True, slots=True)
class RedisHold:
    """A live reservation as Redis has it."""

    holder: str
    seats: tuple[tuple[str, int], ...]
    ga: dict[str, int]

    @property
    def quantity(self) -> int:
        return len(self.seats) + sum(self.ga.values())


@dataclass(frozen=True, slots=True)
class RedisStockState:
    """An event's stock in Redis: maps by section, counts by `section:name`, live holds by id, tickets by holder. It is
    `ready` only if every key exists.
    """

    ready: bool
    maps: dict[str, str]
    counts: dict[str, int]
    holds: dict[str, RedisHold]
    usage: dict[str, int]


@dataclass(slots=True)
class _Expected:
    """What Redis must add up to: live holds by section and by holder; sales that Redis still has as
    holds (`unsynced`).
    """

    held: Counter[str] = field(default_factory=Counter)
    by_holder: Counter[str] = field(default_factory=Counter)
    unsynced: Counter[str] = field(default_factory=Counter)
    unsynced_by_holder: Counter[str] = field(default_factory=Counter)
    owner: dict[tuple[str, int], str] = field(default_factory=dict)
    db_owner: dict[tuple[str, int], str] = field(default_factory=dict)


async def read_redis_stock(redis: Redis, event_id: str, layout: Layout) -> RedisStockState:
    """In one Redis transaction, so that no script runs in between."""
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
    return await asyncio.to_thread(_redis_stock_state, seated, len(parts), replies)  # parsing many holds takes a while


def _redis_stock_state(seated: Sequence[str], parts: int, replies: list[Any]) -> RedisStockState:
    ready, existing, counts, holds, usage, *maps = replies
    return RedisStockState(
        ready == b"1" and existing == parts,
        {s: (marks or b"").decode() for s, marks in zip(seated, maps, strict=True)},
        {k.decode(): int(v) for k, v in counts.items() if k != EPOCH},
        {k.decode(): _parse_hold(v) for k, v in holds.items() if k != EPOCH},
        {k.decode()[2:]: int(v) for k, v in usage.items() if k.startswith(b"t:")},
    )


def _parse_hold(raw: bytes) -> RedisHold:
    hold = orjson.loads(raw)
    seats, ga = parse_selection(hold["selection"])
    return RedisHold(hold["holder"], tuple(sorted(seats)), ga)


async def compare(
    redis_stock: RedisStockState, stock: StockSnapshot, *, lost: frozenset[str] | None = None
) -> list[Difference]:
    """All `differences`, computed in a thread so that requests go on meanwhile."""
    return await asyncio.to_thread(lambda: list(differences(redis_stock, stock, lost=lost)))


def differences(
    redis_stock: RedisStockState, stock: StockSnapshot, *, lost: frozenset[str] | None = None
) -> Iterator[Difference]:
    """Every seat, count, hold and holder that differs.

    `lost`: reservations that an earlier pass missed in Redis, by default all that are missing now. One that is missing
    for the first time may have been made between the two reads.
    """
    live = {record.reservation_id: record for record in stock.live}
    missing = live.keys() - redis_stock.holds.keys()
    known = _expected_state(redis_stock, stock, missing if lost is None else missing & lost)
    for section_id, section in stock.sections.items():
        yield from _seat_differences(section_id, redis_stock.maps.get(section_id, ""), section, known)
        yield from _count_differences(section_id, redis_stock, section, known)
    for reservation_id in missing:
        yield f"hold {reservation_id}", "missing", "there"
    for reservation_id, hold in redis_stock.holds.items():
        record = live.get(reservation_id)
        if record is None:
            yield f"hold {reservation_id}", "there", "missing"
        elif (tuple(record.seats), dict(record.ga)) != (hold.seats, hold.ga):
            yield f"selection {reservation_id}", f"{hold.seats} {hold.ga}", f"{record.seats} {record.ga}"
    for holder in stock.bought_by_holder.keys() | redis_stock.usage.keys() | known.by_holder.keys():
        expected = known.by_holder[holder] + stock.bought_by_holder.get(holder, 0) - known.unsynced_by_holder[holder]
        if (actual := redis_stock.usage.get(holder, 0)) != expected:
            yield f"usage {holder}", str(actual), str(expected)


def _expected_state(redis_stock: RedisStockState, stock: StockSnapshot, lost: set[str] | frozenset[str]) -> _Expected:
    known = _Expected()
    for reservation_id, hold in redis_stock.holds.items():
        known.held.update(hold.ga)
        known.by_holder[hold.holder] += hold.quantity
        known.owner |= dict.fromkeys(hold.seats, reservation_id)
        if reservation_id in stock.sold_since:
            known.unsynced.update(hold.ga)
            known.unsynced_by_holder[hold.holder] += hold.quantity
    for record in stock.live:
        known.db_owner |= dict.fromkeys(record.seats, record.reservation_id)
        if record.reservation_id in lost:
            known.held.update(dict(record.ga))
            known.by_holder[record.holder] += record.quantity
    return known


def _seat_differences(section_id: str, marks: str, section: SectionStock, known: _Expected) -> Iterator[Difference]:
    """Seat by seat, each mark with its reservation."""
    if marks == section.marks:
        return
    for position, mark in enumerate(section.marks):
        if (actual := marks[position : position + 1]) != mark:
            place = section_id, position
            in_redis, in_db = known.owner.get(place, ""), known.db_owner.get(place, "")
            yield f"seat {section_id} {position}", f"{actual}:{in_redis}", f"{mark}:{in_db}"


def _count_differences(
    section_id: str, redis_stock: RedisStockState, section: SectionStock, known: _Expected
) -> Iterator[Difference]:
    """A seated section is compared with its map in Redis, a GA section with Redis' holds and PostgreSQL's sales."""
    if section.marks:
        marks = redis_stock.maps.get(section_id, "")
        wanted = {name: marks.count(mark) for name, mark in MARKS.items()}
    else:
        held, sold = known.held[section_id], section.sold - known.unsynced[section_id]
        left = max(0, section.capacity - section.blocked - held - sold)
        wanted = {"available": left, "held": held, "sold": sold, "blocked": section.blocked}
    for name, n in wanted.items():
        if off := redis_stock.counts.get(f"{section_id}:{name}", 0) - n:
            yield f"count {section_id} {name}", f"{off:+d}", "+0"
