"""The line in Redis: a method for each Lua script, and what the scripts answer, with names.

The answers `not-ready` and `stale-epoch` are raised as exceptions, because every caller must stop there. Callers name
places by the number they joined with; Redis counts in ranks, and this module translates.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal, NamedTuple

import orjson
from redis.exceptions import ConnectionError as RedisConnectionError

from services.queue import redis_keys
from services.queue.rooms.model import WaitingRoom
from shared.concurrency.coalescing import chunks
from shared.contracts.ranking import Ranking
from shared.errors.problems import StaleEpoch
from shared.redis.client import REDIS_AWAY, Argument, Redis, Script, invalidate_slot_map, reply_status
from shared.runtime.clock import Clocks

_load = partial(Script.load, __package__, "prelude")
ALLOCATE, RENEW, COMMIT_JOIN, TOUCH = map(_load, ("allocate", "renew", "commit_join", "touch"))
STATUS, CLAIM, CONFIGURE, REBUILD = map(_load, ("status", "claim", "configure", "rebuild"))
ACKNOWLEDGE, UNDO_CALL, END, EXTEND = map(_load, ("acknowledge", "undo_call", "end", "extend"))
RAISE_COUNTER = _load("raise_counter")
PRELUDE = Script.load(__package__, "prelude").source  # for scripts of other packages

TOUCHES_MAX = 4096
PLACES_MAX = 1024
RUNS_MAX = 1024
ANSWER_WITHIN_S = 1.0


class Allocation(NamedTuple):
    """`ok`: the batch has `granted` numbers from `first` on. Otherwise the reason why it has none."""

    batch_id: str
    outcome: Literal["ok", "closed", "sold-out", "line-full", "busy"]
    first: int = 0
    granted: int = 0
    generation: int = 0

    @property
    def member(self) -> str:
        """The batch in flight, as the script recorded it."""
        return f"{self.first}:{self.granted}:{self.batch_id}"


class StatusReply(NamedTuple):
    """The status of a place in Redis; until when (ms) it is ready or admitted."""

    status: Literal["ready", "admitted", "ended", "waiting"]
    until_ms: int


class ClaimReply(NamedTuple):
    """The outcome of a claim; until when it is admitted. `call` counts from 1."""

    outcome: Literal["admitted", "missed", "waiting", "ended"]
    call: int
    until_ms: int


class TickEvent(NamedTuple):
    """A change by a tick that is not yet in the database. `kind` is called, missed or spent (the last miss)."""

    number: int
    kind: str
    lane: int
    join_seq: int
    call: int
    at_ms: int

    @property
    def place_id(self) -> tuple[int, int]:
        return self.lane, self.join_seq


class DueSession(NamedTuple):
    """A session past its end, which Redis had as `until_ms`; `call` is the call it came from."""

    lane: int
    join_seq: int
    call: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class Stock:
    """Inventory's last stock frame, as the tick takes it. `level` is plenty, last_chance, sold_out or unknown."""

    available: int = -1
    holders_holding: int = 0
    level: str = "unknown"
    holds_begun: int = 0
    holds_released: int = 0
    version: int = 0


class TickReply(NamedTuple):
    """The result of a tick: the room's state, the changes to write to the database, and the sessions that are due."""

    state: dict[str, Any]
    changes: list[TickEvent]
    due: list[DueSession]


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Numbers as runs in ascending order: first and last of each."""
    result: list[tuple[int, int]] = []
    for n in sorted(numbers):
        if result and result[-1][1] + 1 == n:
            result[-1] = (result[-1][0], n)
        else:
            result.append((n, n))
    return result


def parse_tick_event(raw: bytes) -> TickEvent:
    number, kind, lane, seq, call, at_ms = raw.decode().split(":")
    return TickEvent(int(number), kind, int(lane), int(seq), int(call), at_ms=int(at_ms))


def parse_due_session(raw: bytes) -> DueSession:
    return DueSession(*map(int, raw.split(b":")))


class LineNotReady(Exception):
    """Redis does not hold this room completely, or it is being rebuilt."""


@cache
def _names(script: Script) -> frozenset[str]:
    return frozenset(slot.name for slot in (*script.keys, *script.arguments))


def _flat(named: Mapping[str, object]) -> list[str]:
    return [str(value) for pair in named.items() for value in pair]


class RedisLine:
    """The scripts of the line, on one Redis connection."""

    def __init__(self, redis: Redis, ranking: Callable[[str, int], Ranking], *, clock_offset_ms: int = 0) -> None:
        self.redis = redis
        self.clocks = Clocks("queue")
        self._ranking = ranking
        self.clock_offset_ms = clock_offset_ms  # added to every clock, in tests
        self.unresponsive: set[str] = set()  # events whose Redis timed out

    def slowest_clock_ms(self) -> int:
        """The slowest of the clocks that this process knows, Redis' among them, in ms."""
        return self.clocks.slowest_ms() + self.clock_offset_ms

    def slower_clock_ms(self) -> int:
        """The slower of the two clocks that scripts do not see: the database's and this process's, in ms."""
        return self.clocks.slowest_besides_redis_ms() + self.clock_offset_ms

    def _named(
        self, script: Script, event_id: str, ranking: Ranking, lane: int, given: dict[str, Argument]
    ) -> dict[str, Argument]:
        """All that the script takes: what it is given, and what is the same for every script of the line."""
        common: dict[str, Argument] = {
            **redis_keys.by_name(event_id, ranking.epoch, lane),
            "epoch": ranking.epoch_token,
            "lane": lane,
            "clock_offset_ms": self.clock_offset_ms,
        }
        return {name: common[name] for name in _names(script) & common.keys()} | given

    async def run(self, script: Script, event_id: str, ranking: Ranking, lane: int = 0, **given: Argument) -> Any:
        """The script's answer, within the time a fan may wait. `given` is what the script takes besides the keys, the
        epoch, the lane and the clock. After one time-out nobody waits for this event's Redis again until a tick of the
        gatekeeper has been answered. Raises `REDIS_AWAY`.
        """
        if event_id in self.unresponsive:
            raise RedisConnectionError("Redis timed out for this event. The gatekeeper is trying again.")
        return await self.run_in_time(script, event_id, ranking, lane, **given)

    async def run_in_time(
        self, script: Script, event_id: str, ranking: Ranking, lane: int = 0, **given: Argument
    ) -> Any:
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                reply = await script(self.redis, **self._named(script, event_id, ranking, lane, given))
        except REDIS_AWAY:
            self.unresponsive.add(event_id)
            invalidate_slot_map(self.redis)
            raise
        self.unresponsive.discard(event_id)
        return reply

    async def _run_checked(
        self, script: Script, event_id: str, ranking: Ranking, lane: int = 0, **given: Argument
    ) -> Any:
        reply = await self.run(script, event_id, ranking, lane, **given)
        await self.check(reply, event_id, ranking.epoch)
        return reply

    async def check(self, reply: Any, event_id: str, epoch: int) -> None:
        """Raises `LineNotReady` or `StaleEpoch`. Redis that still counts otherwise in the same epoch is not ready."""
        reason = reply_status(reply)
        if reason == "not-ready":
            raise LineNotReady
        if reason == "stale-epoch":
            held = await self.redis.hget(redis_keys.room(event_id), "epoch")
            if held is not None and held.partition(b".")[0] == b"%d" % epoch:
                raise LineNotReady
            raise StaleEpoch

    async def allocate(self, room: WaitingRoom, lane: int, batch_id: str, *, count: int) -> Allocation:
        """Numbers for a batch, or the reason why there are none."""
        outcome, *numbers = await self._run_checked(
            ALLOCATE, room.event_id, room.ranking, lane, batch_id=batch_id, count=count
        )
        return Allocation(batch_id, outcome.decode(), *numbers)

    async def renew(self, event_id: str, epoch: int, lane: int, members: Sequence[str]) -> None:
        """Keeps these batches in flight: they are still being written."""
        await self.run(RENEW, event_id, self._ranking(event_id, epoch), lane, members=members)

    async def commit_join(self, room: WaitingRoom, lane: int, member: str, numbers: Iterable[int]) -> bool:
        """Sets the liveness bits of numbers that are committed. True when nobody waits ahead and a slot is free."""
        parts, call_now = list(chunks(runs(room.ranking.ranks(lane, numbers)), RUNS_MAX)) or [[]], False
        for part in parts:
            _, next_up = await self._run_checked(
                COMMIT_JOIN,
                room.event_id,
                room.ranking,
                lane,
                member=member if part is parts[-1] else "",
                runs=[n for run in part for n in run],
            )
            call_now = call_now or bool(next_up)
        return call_now

    async def touch(self, event_id: str, epoch: int, lane: int, join_seqs: Sequence[int]) -> None:
        ranking = self._ranking(event_id, epoch)
        for ranks in chunks(ranking.ranks(lane, join_seqs), TOUCHES_MAX):
            await self._run_checked(TOUCH, event_id, ranking, lane, join_seqs=ranks)

    async def get_status(
        self, event_id: str, epoch: int, lane: int, join_seqs: Sequence[int]
    ) -> tuple[str, list[StatusReply]]:
        """The room's shown state, and the status of each place."""
        ranking = self._ranking(event_id, epoch)
        ranks = ranking.ranks(lane, join_seqs)
        _, shown, *places = await self._run_checked(STATUS, event_id, ranking, lane, join_seqs=ranks)
        pairs = zip(places[::2], places[1::2], strict=True)
        return shown.decode(), [StatusReply(status.decode(), until_ms) for status, until_ms in pairs]

    async def claim(
        self, event_id: str, epoch: int, lane: int, join_seqs: Sequence[int]
    ) -> tuple[int, list[ClaimReply]]:
        """The generation of Redis' state, and the outcome of each claim."""
        ranking = self._ranking(event_id, epoch)
        ranks, others_ms = ranking.ranks(lane, join_seqs), self.slower_clock_ms()
        _, generation, *claims = await self._run_checked(
            CLAIM, event_id, ranking, lane, others_ms=others_ms, join_seqs=ranks
        )
        triples = zip(claims[::3], claims[1::3], claims[2::3], strict=True)
        return generation, [ClaimReply(outcome.decode(), call, until_ms) for outcome, call, until_ms in triples]

    async def acknowledge(self, room: WaitingRoom, *, generation: int, up_to: int) -> None:
        """Deletes changes that are committed in the database, up to this number."""
        await self.run(ACKNOWLEDGE, room.event_id, room.ranking, generation=generation, up_to=up_to)

    async def undo_call(self, room: WaitingRoom, lane: int, join_seqs: Sequence[int], *, generation: int) -> None:
        """Undoes calls of numbers that have no live place."""
        for ranks in chunks(room.ranking.ranks(lane, join_seqs), PLACES_MAX):
            await self.run(UNDO_CALL, room.event_id, room.ranking, lane, generation=generation, join_seqs=ranks)

    async def end(self, event_id: str, epoch: int, lane: int, join_seqs: Sequence[int]) -> None:
        """Frees the slots of places that have ended in the database."""
        ranking = self._ranking(event_id, epoch)
        for ranks in chunks(ranking.ranks(lane, join_seqs), PLACES_MAX):
            await self.run(END, event_id, ranking, lane, join_seqs=ranks)

    async def extend(self, event_id: str, epoch: int, ends: Sequence[tuple[int, int, int]]) -> None:
        """Extends sessions: lane, join_seq and the new end (ms) of each."""
        ranking = self._ranking(event_id, epoch)
        pairs = [value for lane, seq, until_ms in ends for value in (f"{lane}:{ranking.rank(lane, seq)}", until_ms)]
        await self.run(EXTEND, event_id, ranking, pairs=pairs)

    async def raise_counter(self, event_id: str, epoch: int, lane: int, join_seq: int) -> None:
        """Raises the lane's counter to the highest number in the database."""
        await self.run(RAISE_COUNTER, event_id, self._ranking(event_id, epoch), lane, join_seq=join_seq)

    async def configure(self, room: WaitingRoom) -> None:
        """Writes the room's configuration, unless Redis has a later one."""
        fields = _flat(room.redis_fields())
        await self._run_checked(CONFIGURE, room.event_id, room.ranking, config_version=room.version, fields=fields)

    async def count_slots(self, event_id: str, epoch: int) -> tuple[int, int]:
        """How many calls stand and how many sessions are open; zeros while Redis is unavailable."""
        pipe = self.redis.pipeline(transaction=False)
        for key in (redis_keys.called, redis_keys.active):
            pipe.zcount(key(event_id, epoch), "-inf", "(inf")
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                called, active = await pipe.execute()
        except REDIS_AWAY:
            return 0, 0
        return called, active

    async def rebuild(
        self,
        room: WaitingRoom,
        *,
        ramp: bool,
        fields: Mapping[str, Any],
        called: Mapping[str, int],
        active: Mapping[str, int],
        misses: Mapping[str, int],
        bitmaps: Sequence[bytes],
    ) -> bool:
        """Replaces the line's whole state at once; false when Redis has a later generation. `called`, `active` and
        `misses` are by `lane:rank`, `bitmaps` is taken and done of each lane.
        """
        given: dict[str, Argument] = {
            "lane_keys": redis_keys.of_lanes(room.event_id, room.epoch, room.lanes),
            "generation": room.generation,
            "ramp": int(ramp),
            "fields": orjson.dumps(_flat(fields)),
            "called_json": orjson.dumps(_flat(called)),
            "active_json": orjson.dumps(_flat(active)),
            "misses_json": orjson.dumps(_flat(misses)),
            "bitmaps": bitmaps,
        }
        reply = await REBUILD(self.redis, **self._named(REBUILD, room.event_id, room.ranking, 0, given))
        return reply_status(reply) == "ok"
