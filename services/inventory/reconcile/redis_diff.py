"""The drift between the stock in Redis and in PostgreSQL, in values that stay the same from pass to pass.

The two are read a moment apart, so a hold or sale under way is in one of them only. To tell such a difference from a
lasting one, a seat is compared together with its reservation, and a count with Redis' own holds, by how far it is off:
a change under way never gives the same drift twice.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from services.inventory.catalogue.layout import Layout
from services.inventory.reconcile.drift import Drift, SeatRow
from services.inventory.redis_keys import EPOCH, Keys
from services.inventory.reservations.selection import SeatPosition, StockSelection
from services.inventory.stock.snapshot import MARKS, SectionStock, StockSnapshot
from shared.redis.client import Redis

MISSING, THERE = "missing", "there"


class RedisHold(NamedTuple):
    """A live reservation as Redis has it."""

    holder: str
    stock: StockSelection


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


async def read_redis_stock(redis: Redis, event_id: str, layout: Layout) -> RedisStockState:
    """In one Redis transaction, so that no script runs in between."""
    keys = Keys.of(event_id)
    seated = layout.seated
    parts = keys.parts(seated)
    pipe = redis.pipeline(transaction=True)
    pipe.hget(keys.meta, "ready").exists(*parts)
    for hash_key in (keys.counts, keys.holds, keys.usage):
        pipe.hgetall(hash_key)
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
    return RedisHold(hold["holder"], StockSelection.parse(hold["selection"]))


async def compare(
    redis_stock: RedisStockState, stock: StockSnapshot, *, lost: Collection[str] | None = None
) -> list[Drift]:
    """All `differences`, computed in a thread so that requests go on meanwhile."""
    return await asyncio.to_thread(lambda: list(differences(redis_stock, stock, lost=lost)))


def differences(
    redis_stock: RedisStockState, stock: StockSnapshot, *, lost: Collection[str] | None = None
) -> Iterator[Drift]:
    """Every seat, count, hold and holder that differs.

    `lost`: reservations that an earlier pass missed in Redis, by default all that are missing now. One that is missing
    for the first time may have been made between the two reads.
    """
    live = {hold.reservation_id: hold for hold in stock.live}
    missing = live.keys() - redis_stock.holds.keys()
    known = _expected_state(redis_stock, stock, missing if lost is None else missing.intersection(lost))
    for section_id, section in stock.sections.items():
        yield from _seat_differences(section_id, redis_stock.maps.get(section_id, ""), section, known)
        yield from _count_differences(section_id, redis_stock, section, known)
    for reservation_id in missing:
        yield Drift("hold", reservation_id, None, MISSING, THERE)
    for reservation_id, hold in redis_stock.holds.items():
        if reservation_id not in live:
            yield Drift("hold", reservation_id, None, THERE, MISSING)
        elif (expected := live[reservation_id].stock) != hold.stock:
            yield Drift("selection", reservation_id, None, hold.stock.text(), expected.text())
    for holder in redis_stock.usage.keys() | known.usage.keys():
        if (actual := redis_stock.usage.get(holder, 0)) != known.usage[holder]:
            yield Drift("usage", holder, None, actual, known.usage[holder])


@dataclass(slots=True)
class _Expected:
    """What Redis must add up to: tickets by holder, GA tickets by section that are held, and those of them that are
    sold (`unsynced`); by seat, its reservation in Redis and in PostgreSQL.
    """

    usage: Counter[str]
    held: Counter[str] = field(default_factory=Counter)
    unsynced: Counter[str] = field(default_factory=Counter)
    owner: dict[SeatPosition, str] = field(default_factory=dict)
    db_owner: dict[SeatPosition, str] = field(default_factory=dict)


def _expected_state(redis_stock: RedisStockState, stock: StockSnapshot, lost: Collection[str]) -> _Expected:
    """Redis' holds, those it lost, and what PostgreSQL sold; a sale that Redis still has as a hold counts once."""
    known = _Expected(Counter(stock.bought_by_holder))
    for reservation_id, hold in redis_stock.holds.items():
        known.held.update(hold.stock.ga)
        known.owner |= dict.fromkeys(hold.stock.seats, reservation_id)
        if reservation_id in stock.sold_since:
            known.unsynced.update(hold.stock.ga)
        else:
            known.usage[hold.holder] += hold.stock.quantity
    for live in stock.live:
        known.db_owner |= dict.fromkeys(live.stock.seats, live.reservation_id)
        if live.reservation_id in lost:
            known.held.update(live.stock.ga)
            known.usage[live.holder] += live.stock.quantity
    return known


def _seat_differences(section_id: str, marks: str, section: SectionStock, known: _Expected) -> Iterator[Drift]:
    """Seat by seat, each mark with its reservation; `?` if the map in Redis is too short."""
    if marks == section.marks:
        return
    for position, mark in enumerate(section.marks):
        if (actual := marks[position : position + 1] or "?") != mark:
            owner, db_owner = (owners.get((section_id, position), "") for owners in (known.owner, known.db_owner))
            yield Drift("seat", section_id, position, SeatRow(actual, owner), SeatRow(mark, db_owner))


def _count_differences(
    section_id: str, redis_stock: RedisStockState, section: SectionStock, known: _Expected
) -> Iterator[Drift]:
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
            yield Drift("count", section_id, name, off, 0)
