"""The line in the engine: every script by its verb, with an event's keys in their places.

A script answers with a word. `not-ready` and `stale-epoch` come out as exceptions: every caller must stop there.
Callers name places by the number they joined with; the engine counts in ranks once a lottery is drawn.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import orjson
from redis.exceptions import ConnectionError as RedisConnectionError

from services.queue import redis_keys
from services.queue.line.replies import Allocation, Claim, StatusReply, Stock, TickReply, change, due, runs
from services.queue.lottery.ranking import Ranking
from services.queue.rooms.model import WaitingRoom
from shared.redis.client import REDIS_AWAY, Redis, doubt
from shared.redis.scripts import Argument, Script, word
from shared.runtime.clock_offsets import Clocks
from shared.web.problems import StaleEpoch

ALLOCATE, RENEW = (Script.load(__package__, verb) for verb in ("allocate", "renew"))
LAND, HEAR = (Script.load(__package__, "parts", verb) for verb in ("land", "hear"))
LOOK, CLAIM = (Script.load(__package__, verb) for verb in ("look", "claim"))
TICK = Script.load(__package__, "parts", "share", "scan", "coming", "tick")
ACKNOWLEDGE, VOID = (Script.load(__package__, verb) for verb in ("acknowledge", "void"))
FINISH, EXTEND, RAISE = (Script.load(__package__, verb) for verb in ("finish", "extend", "raise"))
CONFIGURE, FILL = Script.load(__package__, "configure"), Script.load(__package__, "parts", "fill")

HEARD_MAX = 4096
PLACES_MAX = 1024
RUNS_MAX = 1024
ANSWER_WITHIN_S = 1.0


class LineNotReady(Exception):
    """The engine does not hold this room, or is being filled."""


class RedisLine:
    """The scripts of the line on one engine."""

    def __init__(self, redis: Redis, draw: Callable[[str, int], Ranking], *, clock_offset_ms: int = 0) -> None:
        self.redis = redis
        self.clocks = Clocks("queue")
        self._draw = draw
        self.clock_offset_ms = clock_offset_ms  # of every clock
        self.silent: set[str] = set()  # events whose engine did not answer

    def _others_ms(self) -> int:
        """The time by the clocks that scripts do not see, the slower one."""
        return self.clocks.others_ms() + self.clock_offset_ms

    async def ask(self, event_id: str, script: Script, **named: Argument) -> Any:
        """What a script answers, in the time a fan may wait. One time-out opens the way past the engine to all: nobody
        waits for it again until a turn of the gatekeeper has been answered.
        """
        if event_id in self.silent:
            raise RedisConnectionError("The engine did not answer just now.")
        return await self._within(event_id, script, **named)

    async def _within(self, event_id: str, script: Script, **named: Argument) -> Any:
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                reply = await script(self.redis, **named)
        except REDIS_AWAY:
            self.silent.add(event_id)
            doubt(self.redis)
            raise
        self.silent.discard(event_id)
        return reply

    async def _checked(self, reply: Any, event_id: str, epoch: int) -> None:
        """Raises what stops every caller. An engine that counts another way in the same epoch is not ready."""
        answer = word(reply)
        if answer == "not-ready":
            raise LineNotReady
        if answer == "stale-epoch":
            held = await self.redis.hget(redis_keys.room(event_id), "epoch")
            if held is not None and held.partition(b".")[0] == b"%d" % epoch:
                raise LineNotReady
            raise StaleEpoch

    async def allocate(self, room: WaitingRoom, lane: int, batch_id: str, *, count: int) -> Allocation | str:
        """Numbers for a batch, or the word that says why not."""
        reply = await self.ask(
            room.event_id,
            ALLOCATE,
            room=redis_keys.room(room.event_id),
            inflight=redis_keys.inflight(room.event_id, room.epoch, lane),
            epoch=room.draw.generation,
            lane=lane,
            batch_id=batch_id,
            count=count,
            clock_offset_ms=self.clock_offset_ms,
        )
        await self._checked(reply, room.event_id, room.epoch)
        if word(reply) != "ok":
            return word(reply)
        _, first, granted, fill = reply
        return Allocation(first, granted, fill, f"{first}:{granted}:{batch_id}")

    async def renew(self, event_id: str, epoch: int, lane: int, members: Sequence[str]) -> None:
        """Says that these batches are still being written."""
        await self.ask(
            event_id,
            RENEW,
            room=redis_keys.room(event_id),
            inflight=redis_keys.inflight(event_id, epoch, lane),
            clock_offset_ms=self.clock_offset_ms,
            members=members,
        )

    async def commit_join(self, room: WaitingRoom, lane: int, member: str, numbers: Iterable[int]) -> bool:
        """Sets the bits of numbers that are on disk. True when nobody waits ahead and a place is free."""
        found, call_now = runs(room.draw.ranks(lane, numbers)), False
        seen_0, seen_1, seen_2 = redis_keys.seen(room.event_id, room.epoch, lane)
        for start in range(0, max(1, len(found)), RUNS_MAX):
            part = found[start : start + RUNS_MAX]
            last = start + RUNS_MAX >= len(found)
            reply = await self.ask(
                room.event_id,
                LAND,
                room=redis_keys.room(room.event_id),
                called=redis_keys.called(room.event_id, room.epoch),
                active=redis_keys.active(room.event_id, room.epoch),
                inflight=redis_keys.inflight(room.event_id, room.epoch, lane),
                seen_0=seen_0,
                seen_1=seen_1,
                seen_2=seen_2,
                taken=redis_keys.taken(room.event_id, room.epoch, lane),
                done=redis_keys.done(room.event_id, room.epoch, lane),
                epoch=room.draw.generation,
                lane=lane,
                member=member if last else "",
                clock_offset_ms=self.clock_offset_ms,
                runs=[n for run in part for n in run],
            )
            await self._checked(reply, room.event_id, room.epoch)
            call_now = call_now or bool(reply[1])
        return call_now

    async def touch(self, event_id: str, epoch: int, lane: int, join_seqs: Sequence[int]) -> None:
        """Notes signs of life."""
        draw = self._draw(event_id, epoch)
        ranks = draw.ranks(lane, join_seqs)
        seen_0, seen_1, seen_2 = redis_keys.seen(event_id, epoch, lane)
        for start in range(0, len(join_seqs), HEARD_MAX):
            reply = await self.ask(
                event_id,
                HEAR,
                room=redis_keys.room(event_id),
                seen_0=seen_0,
                seen_1=seen_1,
                seen_2=seen_2,
                epoch=draw.generation,
                lane=lane,
                clock_offset_ms=self.clock_offset_ms,
                join_seqs=ranks[start : start + HEARD_MAX],
            )
            await self._checked(reply, event_id, epoch)

    async def get_status(
        self, event_id: str, epoch: int, lane: int, join_seqs: Sequence[int]
    ) -> tuple[str, list[StatusReply]]:
        """The room's shown state, and where each place stands."""
        draw = self._draw(event_id, epoch)
        reply = await self.ask(
            event_id,
            LOOK,
            room=redis_keys.room(event_id),
            called=redis_keys.called(event_id, epoch),
            active=redis_keys.active(event_id, epoch),
            done=redis_keys.done(event_id, epoch, lane),
            epoch=draw.generation,
            lane=lane,
            join_seqs=draw.ranks(lane, join_seqs),
        )
        await self._checked(reply, event_id, epoch)
        return reply[1].decode(), [StatusReply(reply[i].decode(), reply[i + 1]) for i in range(2, len(reply), 2)]

    async def claim(self, event_id: str, epoch: int, lane: int, join_seqs: Sequence[int]) -> tuple[int, list[Claim]]:
        """The engine's filling, and what each claim came to."""
        draw = self._draw(event_id, epoch)
        reply = await self.ask(
            event_id,
            CLAIM,
            room=redis_keys.room(event_id),
            called=redis_keys.called(event_id, epoch),
            active=redis_keys.active(event_id, epoch),
            misses=redis_keys.misses(event_id, epoch),
            done=redis_keys.done(event_id, epoch, lane),
            epoch=draw.generation,
            lane=lane,
            clock_offset_ms=self.clock_offset_ms,
            others_ms=self._others_ms(),
            join_seqs=draw.ranks(lane, join_seqs),
        )
        await self._checked(reply, event_id, epoch)
        triples = range(2, len(reply), 3)
        return reply[1], [Claim(reply[i].decode(), reply[i + 1], reply[i + 2]) for i in triples]

    async def tick(self, room: WaitingRoom, *, deaf: bool, stock: Stock) -> TickReply:
        """One turn of the gatekeeper's script."""
        reply = await self._within(
            room.event_id,
            TICK,
            room=redis_keys.room(room.event_id),
            called=redis_keys.called(room.event_id, room.epoch),
            active=redis_keys.active(room.event_id, room.epoch),
            misses=redis_keys.misses(room.event_id, room.epoch),
            unwritten=redis_keys.unwritten(room.event_id, room.epoch),
            lane_keys=redis_keys.of_lanes(room.event_id, room.epoch, room.lanes),
            epoch=room.draw.generation,
            deaf=int(deaf),
            stock_available=stock.available,
            holders_holding=stock.holders_holding,
            holds_begun=stock.holds_begun,
            holds_let_go=stock.holds_let_go,
            stock_version=stock.version,
            stock=stock.word,
            clock_offset_ms=self.clock_offset_ms,
            others_ms=self._others_ms(),
            lanes=room.lanes,
        )
        await self._checked(reply, room.event_id, room.epoch)
        _, state, changes, dues = reply
        entry = room.draw.entry
        return TickReply(
            orjson.loads(state),
            [one._replace(join_seq=entry(one.lane, one.join_seq)) for one in map(change, changes)],
            [one._replace(join_seq=entry(one.lane, one.join_seq)) for one in map(due, dues)],
        )

    async def acknowledge(self, room: WaitingRoom, *, fill: int, up_to: int) -> None:
        """Forgets changes that are in the ledger."""
        unwritten = redis_keys.unwritten(room.event_id, room.epoch)
        await self.ask(
            room.event_id, ACKNOWLEDGE, room=redis_keys.room(room.event_id), unwritten=unwritten, fill=fill, up_to=up_to
        )

    async def void(self, room: WaitingRoom, lane: int, join_seqs: Sequence[int], *, fill: int) -> None:
        """Takes back calls of numbers without a live place."""
        seen_0, seen_1, seen_2 = redis_keys.seen(room.event_id, room.epoch, lane)
        ranks = room.draw.ranks(lane, join_seqs)
        for start in range(0, len(ranks), PLACES_MAX):
            await self.ask(
                room.event_id,
                VOID,
                room=redis_keys.room(room.event_id),
                called=redis_keys.called(room.event_id, room.epoch),
                seen_0=seen_0,
                seen_1=seen_1,
                seen_2=seen_2,
                taken=redis_keys.taken(room.event_id, room.epoch, lane),
                done=redis_keys.done(room.event_id, room.epoch, lane),
                epoch=room.draw.generation,
                fill=fill,
                lane=lane,
                join_seqs=ranks[start : start + PLACES_MAX],
            )

    async def finish(self, event_id: str, epoch: int, lane: int, join_seqs: Sequence[int]) -> None:
        """Frees the slots of places that the ledger has ended."""
        draw = self._draw(event_id, epoch)
        ranks = draw.ranks(lane, join_seqs)
        for start in range(0, len(ranks), PLACES_MAX):
            await self.ask(
                event_id,
                FINISH,
                room=redis_keys.room(event_id),
                called=redis_keys.called(event_id, epoch),
                active=redis_keys.active(event_id, epoch),
                done=redis_keys.done(event_id, epoch, lane),
                epoch=draw.generation,
                lane=lane,
                join_seqs=ranks[start : start + PLACES_MAX],
            )

    async def extend(self, event_id: str, epoch: int, ends: Sequence[tuple[int, int, int]]) -> None:
        """Lets sessions stand: lane, join_seq and the new end (ms) of each."""
        draw = self._draw(event_id, epoch)
        pairs = [value for lane, seq, until_ms in ends for value in (f"{lane}:{draw.rank(lane, seq)}", until_ms)]
        active = redis_keys.active(event_id, epoch)
        await self.ask(
            event_id, EXTEND, room=redis_keys.room(event_id), active=active, epoch=draw.generation, pairs=pairs
        )

    async def raise_counter(self, event_id: str, epoch: int, lane: int, join_seq: int) -> None:
        """Moves the lane's counter past the ledger's highest number."""
        await self.ask(
            event_id,
            RAISE,
            room=redis_keys.room(event_id),
            epoch=self._draw(event_id, epoch).generation,
            lane=lane,
            join_seq=join_seq,
            clock_offset_ms=self.clock_offset_ms,
        )

    async def configure(self, room: WaitingRoom) -> str:
        """Gives the room its configuration; `older` when a later one is there."""
        reply = await self.ask(
            room.event_id,
            CONFIGURE,
            room=redis_keys.room(room.event_id),
            epoch=room.draw.generation,
            config_version=room.version,
            clock_offset_ms=self.clock_offset_ms,
            fields=room.fields(),
        )
        await self._checked(reply, room.event_id, room.epoch)
        return word(reply)

    async def fill(
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
        """Fills the engine all at once; false when a later filling is there. `bitmaps`: per lane taken, done."""
        reply = await FILL(
            self.redis,
            room=redis_keys.room(room.event_id),
            called=redis_keys.called(room.event_id, room.epoch),
            active=redis_keys.active(room.event_id, room.epoch),
            misses=redis_keys.misses(room.event_id, room.epoch),
            unwritten=redis_keys.unwritten(room.event_id, room.epoch),
            lane_keys=redis_keys.of_lanes(room.event_id, room.epoch, room.lanes),
            epoch=room.draw.generation,
            fill=room.fill,
            ramp=int(ramp),
            clock_offset_ms=self.clock_offset_ms,
            fields=orjson.dumps(fields),
            called_json=orjson.dumps(called),
            active_json=orjson.dumps(active),
            misses_json=orjson.dumps(misses),
            bitmaps=bitmaps,
        )
        return word(reply) == "ok"
