"""The line in Redis: a method for each Lua script, which passes the keys and arguments of an event.

The answers `not-ready` and `stale-epoch` are raised as exceptions, because every caller must stop there. Callers name
places by the number they joined with; Redis counts in ranks once a lottery is drawn, and this module translates.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import orjson
from redis.exceptions import ConnectionError as RedisConnectionError

from services.queue import redis_keys
from services.queue.line.replies import (
    Allocation,
    ClaimReply,
    StatusReply,
    Stock,
    TickReply,
    parse_due_session,
    parse_tick_event,
    runs,
)
from services.queue.lottery.ranking import Ranking
from services.queue.rooms.model import WaitingRoom
from shared.redis.client import REDIS_AWAY, Redis, invalidate_slot_map
from shared.redis.scripts import Argument, Script, reply_status
from shared.runtime.clock_offsets import Clocks
from shared.web.problems import StaleEpoch

_load = partial(Script.load, __package__, "prelude")
ALLOCATE, RENEW, COMMIT_JOIN, TOUCH = map(_load, ("allocate", "renew", "commit_join", "touch"))
STATUS, CLAIM, CONFIGURE, REBUILD = map(_load, ("status", "claim", "configure", "rebuild"))
ACKNOWLEDGE, UNDO_CALL, END, EXTEND = map(_load, ("acknowledge", "undo_call", "end", "extend"))
RAISE_COUNTER, TICK = _load("raise_counter"), _load("weighted_share", "scan", "expected_buyers", "tick")
PRELUDE = Script.load(__package__, "prelude").source  # for scripts of other packages

TOUCHES_MAX = 4096
PLACES_MAX = 1024
RUNS_MAX = 1024
ANSWER_WITHIN_S = 1.0


class LineNotReady(Exception):
    """Redis does not hold this room completely, or it is being rebuilt."""


class RedisLine:
    """The scripts of the line, on one Redis connection."""

    def __init__(self, redis: Redis, ranking: Callable[[str, int], Ranking], *, clock_offset_ms: int = 0) -> None:
        self.redis = redis
        self.clocks = Clocks("queue")
        self._ranking = ranking
        self.clock_offset_ms = clock_offset_ms  # added to every clock, in tests
        self.unresponsive: set[str] = set()  # events whose Redis timed out

    def _slower_clock_ms(self) -> int:
        """The slower of the two clocks that scripts do not see: the database's and this process's, in ms."""
        return self.clocks.slowest_besides_redis_ms() + self.clock_offset_ms

    async def run_script(self, event_id: str, script: Script, **named: Argument) -> Any:
        """The script's answer, within the time a fan may wait. After one time-out nobody waits for this event's Redis
        again until a tick of the gatekeeper has been answered. Raises `REDIS_AWAY`.
        """
        if event_id in self.unresponsive:
            raise RedisConnectionError("Redis timed out for this event. The gatekeeper is trying again.")
        return await self._run_in_time(event_id, script, **named)

    async def _run_in_time(self, event_id: str, script: Script, **named: Argument) -> Any:
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                reply = await script(self.redis, **named)
        except REDIS_AWAY:
            self.unresponsive.add(event_id)
            invalidate_slot_map(self.redis)
            raise
        self.unresponsive.discard(event_id)
        return reply

    async def _checked(self, reply: Any, event_id: str, epoch: int) -> None:
        """Raises `LineNotReady` or `StaleEpoch`. Redis that still counts otherwise in the same epoch is not ready."""
        reason = reply_status(reply)
        if reason == "not-ready":
            raise LineNotReady
        if reason == "stale-epoch":
            held = await self.redis.hget(redis_keys.room(event_id), "epoch")
            if held is not None and held.partition(b".")[0] == b"%d" % epoch:
                raise LineNotReady
            raise StaleEpoch

    async def allocate(self, room: WaitingRoom, lane: int, batch_id: str, *, count: int) -> Allocation | str:
        """Numbers for a batch, or the reason why there are none."""
        reply = await self.run_script(
            room.event_id,
            ALLOCATE,
            room=redis_keys.room(room.event_id),
            inflight=redis_keys.inflight(room.event_id, room.epoch, lane),
            epoch=room.ranking.epoch_token,
            lane=lane,
            batch_id=batch_id,
            count=count,
            clock_offset_ms=self.clock_offset_ms,
        )
        await self._checked(reply, room.event_id, room.epoch)
        if reply_status(reply) != "ok":
            return reply_status(reply)
        _, first, granted, generation = reply
        return Allocation(first, granted, generation, f"{first}:{granted}:{batch_id}")

    async def renew(self, event_id: str, epoch: int, lane: int, members: Sequence[str]) -> None:
        """Keeps these batches in flight: they are still being written."""
        await self.run_script(
            event_id,
            RENEW,
            room=redis_keys.room(event_id),
            inflight=redis_keys.inflight(event_id, epoch, lane),
            clock_offset_ms=self.clock_offset_ms,
            members=members,
        )

    async def commit_join(self, room: WaitingRoom, lane: int, member: str, numbers: Iterable[int]) -> bool:
        """Sets the liveness bits of numbers that are committed. True when nobody waits ahead and a slot is free."""
        ranges, call_now = runs(room.ranking.ranks(lane, numbers)), False
        alive_0, alive_1, alive_2 = redis_keys.alive(room.event_id, room.epoch, lane)
        for start in range(0, max(1, len(ranges)), RUNS_MAX):
            part = ranges[start : start + RUNS_MAX]
            last = start + RUNS_MAX >= len(ranges)
            reply = await self.run_script(
                room.event_id,
                COMMIT_JOIN,
                room=redis_keys.room(room.event_id),
                called=redis_keys.called(room.event_id, room.epoch),
                active=redis_keys.active(room.event_id, room.epoch),
                inflight=redis_keys.inflight(room.event_id, room.epoch, lane),
                alive_0=alive_0,
                alive_1=alive_1,
                alive_2=alive_2,
                taken=redis_keys.taken(room.event_id, room.epoch, lane),
                done=redis_keys.done(room.event_id, room.epoch, lane),
                epoch=room.ranking.epoch_token,
                lane=lane,
                member=member if last else "",
                clock_offset_ms=self.clock_offset_ms,
                runs=[n for run in part for n in run],
            )
            await self._checked(reply, room.event_id, room.epoch)
            call_now = call_now or bool(reply[1])
        return call_now

    async def touch(self, event_id: str, epoch: int, lane: int, join_seqs: Sequence[int]) -> None:
        """Records heartbeats of places."""
        ranking = self._ranking(event_id, epoch)
        ranks = ranking.ranks(lane, join_seqs)
        alive_0, alive_1, alive_2 = redis_keys.alive(event_id, epoch, lane)
        for start in range(0, len(join_seqs), TOUCHES_MAX):
            reply = await self.run_script(
                event_id,
                TOUCH,
                room=redis_keys.room(event_id),
                alive_0=alive_0,
                alive_1=alive_1,
                alive_2=alive_2,
                epoch=ranking.epoch_token,
                lane=lane,
                clock_offset_ms=self.clock_offset_ms,
                join_seqs=ranks[start : start + TOUCHES_MAX],
            )
            await self._checked(reply, event_id, epoch)

    async def get_status(
        self, event_id: str, epoch: int, lane: int, join_seqs: Sequence[int]
    ) -> tuple[str, list[StatusReply]]:
        """The room's shown state, and the status of each place."""
        ranking = self._ranking(event_id, epoch)
        reply = await self.run_script(
            event_id,
            STATUS,
            room=redis_keys.room(event_id),
            called=redis_keys.called(event_id, epoch),
            active=redis_keys.active(event_id, epoch),
            done=redis_keys.done(event_id, epoch, lane),
            epoch=ranking.epoch_token,
            lane=lane,
            join_seqs=ranking.ranks(lane, join_seqs),
        )
        await self._checked(reply, event_id, epoch)
        return reply[1].decode(), [StatusReply(reply[i].decode(), reply[i + 1]) for i in range(2, len(reply), 2)]

    async def claim(
        self, event_id: str, epoch: int, lane: int, join_seqs: Sequence[int]
    ) -> tuple[int, list[ClaimReply]]:
        """The generation of Redis' state, and the outcome of each claim."""
        ranking = self._ranking(event_id, epoch)
        reply = await self.run_script(
            event_id,
            CLAIM,
            room=redis_keys.room(event_id),
            called=redis_keys.called(event_id, epoch),
            active=redis_keys.active(event_id, epoch),
            misses=redis_keys.misses(event_id, epoch),
            done=redis_keys.done(event_id, epoch, lane),
            epoch=ranking.epoch_token,
            lane=lane,
            clock_offset_ms=self.clock_offset_ms,
            others_ms=self._slower_clock_ms(),
            join_seqs=ranking.ranks(lane, join_seqs),
        )
        await self._checked(reply, event_id, epoch)
        triples = range(2, len(reply), 3)
        return reply[1], [ClaimReply(reply[i].decode(), reply[i + 1], reply[i + 2]) for i in triples]

    async def tick(self, room: WaitingRoom, *, heartbeat_gap: bool, stock: Stock) -> TickReply:
        """Runs the gatekeeper's script once."""
        reply = await self._run_in_time(
            room.event_id,
            TICK,
            room=redis_keys.room(room.event_id),
            called=redis_keys.called(room.event_id, room.epoch),
            active=redis_keys.active(room.event_id, room.epoch),
            misses=redis_keys.misses(room.event_id, room.epoch),
            unwritten=redis_keys.unwritten(room.event_id, room.epoch),
            lane_keys=redis_keys.of_lanes(room.event_id, room.epoch, room.lanes),
            epoch=room.ranking.epoch_token,
            heartbeat_gap=int(heartbeat_gap),
            stock_available=stock.available,
            holders_holding=stock.holders_holding,
            holds_begun=stock.holds_begun,
            holds_released=stock.holds_released,
            stock_version=stock.version,
            stock=stock.level,
            clock_offset_ms=self.clock_offset_ms,
            others_ms=self._slower_clock_ms(),
            lanes=room.lanes,
        )
        await self._checked(reply, room.event_id, room.epoch)
        _, state, changes, due = reply
        entry = room.ranking.entry
        return TickReply(
            orjson.loads(state),
            [one._replace(join_seq=entry(one.lane, one.join_seq)) for one in map(parse_tick_event, changes)],
            [one._replace(join_seq=entry(one.lane, one.join_seq)) for one in map(parse_due_session, due)],
        )

    async def acknowledge(self, room: WaitingRoom, *, generation: int, up_to: int) -> None:
        """Deletes changes that are committed in the database, up to this number."""
        unwritten = redis_keys.unwritten(room.event_id, room.epoch)
        await self.run_script(
            room.event_id,
            ACKNOWLEDGE,
            room=redis_keys.room(room.event_id),
            unwritten=unwritten,
            generation=generation,
            up_to=up_to,
        )

    async def undo_call(self, room: WaitingRoom, lane: int, join_seqs: Sequence[int], *, generation: int) -> None:
        """Undoes calls of numbers that have no live place."""
        alive_0, alive_1, alive_2 = redis_keys.alive(room.event_id, room.epoch, lane)
        ranks = room.ranking.ranks(lane, join_seqs)
        for start in range(0, len(ranks), PLACES_MAX):
            await self.run_script(
                room.event_id,
                UNDO_CALL,
                room=redis_keys.room(room.event_id),
                called=redis_keys.called(room.event_id, room.epoch),
                alive_0=alive_0,
                alive_1=alive_1,
                alive_2=alive_2,
                taken=redis_keys.taken(room.event_id, room.epoch, lane),
                done=redis_keys.done(room.event_id, room.epoch, lane),
                epoch=room.ranking.epoch_token,
                generation=generation,
                lane=lane,
                join_seqs=ranks[start : start + PLACES_MAX],
            )

    async def end(self, event_id: str, epoch: int, lane: int, join_seqs: Sequence[int]) -> None:
        """Frees the slots of places that have ended in the database."""
        ranking = self._ranking(event_id, epoch)
        ranks = ranking.ranks(lane, join_seqs)
        for start in range(0, len(ranks), PLACES_MAX):
            await self.run_script(
                event_id,
                END,
                room=redis_keys.room(event_id),
                called=redis_keys.called(event_id, epoch),
                active=redis_keys.active(event_id, epoch),
                done=redis_keys.done(event_id, epoch, lane),
                epoch=ranking.epoch_token,
                lane=lane,
                join_seqs=ranks[start : start + PLACES_MAX],
            )

    async def extend(self, event_id: str, epoch: int, ends: Sequence[tuple[int, int, int]]) -> None:
        """Extends sessions: lane, join_seq and the new end (ms) of each."""
        ranking = self._ranking(event_id, epoch)
        pairs = [value for lane, seq, until_ms in ends for value in (f"{lane}:{ranking.rank(lane, seq)}", until_ms)]
        active = redis_keys.active(event_id, epoch)
        await self.run_script(
            event_id, EXTEND, room=redis_keys.room(event_id), active=active, epoch=ranking.epoch_token, pairs=pairs
        )

    async def raise_counter(self, event_id: str, epoch: int, lane: int, join_seq: int) -> None:
        """Raises the lane's counter to the highest number in the database."""
        await self.run_script(
            event_id,
            RAISE_COUNTER,
            room=redis_keys.room(event_id),
            epoch=self._ranking(event_id, epoch).epoch_token,
            lane=lane,
            join_seq=join_seq,
            clock_offset_ms=self.clock_offset_ms,
        )

    async def configure(self, room: WaitingRoom) -> str:
        """Writes the room's configuration; answers `older` when Redis has a later one."""
        reply = await self.run_script(
            room.event_id,
            CONFIGURE,
            room=redis_keys.room(room.event_id),
            epoch=room.ranking.epoch_token,
            config_version=room.version,
            clock_offset_ms=self.clock_offset_ms,
            fields=room.redis_fields(),
        )
        await self._checked(reply, room.event_id, room.epoch)
        return reply_status(reply)

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
        fields: Sequence[str],
        called: Sequence[str | int],
        active: Sequence[str | int],
        misses: Sequence[str | int],
        bitmaps: Sequence[bytes],
    ) -> bool:
        """Replaces the line's whole state at once; false when Redis has a later generation. `called`, `active` and
        `misses` are flat pairs, `bitmaps` is taken and done of each lane.
        """
        reply = await REBUILD(
            self.redis,
            room=redis_keys.room(room.event_id),
            called=redis_keys.called(room.event_id, room.epoch),
            active=redis_keys.active(room.event_id, room.epoch),
            misses=redis_keys.misses(room.event_id, room.epoch),
            unwritten=redis_keys.unwritten(room.event_id, room.epoch),
            lane_keys=redis_keys.of_lanes(room.event_id, room.epoch, room.lanes),
            epoch=room.ranking.epoch_token,
            generation=room.generation,
            ramp=int(ramp),
            clock_offset_ms=self.clock_offset_ms,
            fields=orjson.dumps(fields),
            called_json=orjson.dumps(called),
            active_json=orjson.dumps(active),
            misses_json=orjson.dumps(misses),
            bitmaps=bitmaps,
        )
        return reply_status(reply) == "ok"
