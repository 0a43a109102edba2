"""The admission loop: each tick runs the Redis script, saves its changes, acknowledges them and publishes the frame.

Any number of gatekeepers may run, without a leader. A frame is published after its changes are committed, so a head
that fans see is never lost. An operator may have fans admitted beyond the rate, in one tick.

A room is quiet while nobody in it waits, is called or has a session, and none of its times comes soon. While all rooms
are, they are ticked only to repeat their frames.
"""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import orjson

from services.queue import redis_keys
from services.queue.admission.publisher import FramePublisher
from services.queue.admission.stock import StockCache
from services.queue.line.rebuild import Recovery
from services.queue.line.redis_line import (
    ANSWER_WITHIN_S,
    PRELUDE,
    LineNotReady,
    RedisLine,
    Stock,
    TickReply,
    parse_due_session,
    parse_tick_event,
)
from services.queue.line.repository import LineRepository, TickResult, by_lane
from services.queue.metrics import (
    ACTIVE,
    CALLED,
    ENDED,
    HEARTBEAT_GAP_TICKS,
    IN_PROGRESS,
    LANE_CALLED,
    LANE_CONTENDED_CALLS,
    LANE_FAIR_SHARE,
    MANUALLY_ADMITTED,
    MISSED,
    ROOM_OPEN,
    TICK_SECONDS,
    VOIDED,
    WAIT_SECONDS,
    WAITING,
)
from services.queue.places.heartbeats import Heartbeats
from services.queue.places.sessions import SessionEnder
from services.queue.rooms.model import WaitingRoom
from services.queue.rooms.store import Rooms
from shared.concurrency.background import QUIET_S, Quiet, wake
from shared.contracts.frames import FRAME_REPEAT_S, LineFrame
from shared.errors.problems import StaleEpoch, Unavailable
from shared.postgres.engine import DB_AWAY, AsyncEngine
from shared.redis.client import REDIS_AWAY, Script, reply_status
from shared.runtime.logging import get_logger, request_fields
from shared.runtime.tracing import sale_log

log = get_logger("onsale.queue")
REFRESH_S = 0.9
SOON_MS = round(1000 * (FRAME_REPEAT_S + REFRESH_S))  # longer than between two ticks of a quiet room
DRAIN_TIMEOUT_S = 3.0
TICK = Script.load(__package__, "weighted_share", "scan", "expected_buyers", "in_progress", "tick", prelude=PRELUDE)


@dataclass
class Gatekeeper:
    """Ticks all rooms. Ticks of a room never overlap in one process, so its frames never go back."""

    db: AsyncEngine
    line: RedisLine
    rooms: Rooms
    frames: FramePublisher
    stock_cache: StockCache
    heartbeats: Heartbeats
    sessions: SessionEnder
    recovery: Recovery
    held_back: set[str] = field(default_factory=set)  # rooms whose ceiling holds fans back
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)
    _ticks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _heartbeat_gaps: set[str] = field(default_factory=set)
    _without_redis: set[str] = field(default_factory=set)
    _quiet: set[str] = field(default_factory=set)
    _refresh_at_s: float = 0.0

    async def tick_all(self) -> Quiet | None:
        """Starts a tick in every room without one. Rooms that call nobody are ticked once a second. Quiet until a frame
        must be repeated, if all rooms were quiet when they were last ticked.
        """
        now_s = asyncio.get_running_loop().time()
        if refreshes := now_s >= self._refresh_at_s:
            self._refresh_at_s = now_s + REFRESH_S
            await self._refresh()
        for room in list(self.rooms.known.values()):
            if room.event_id in self._ticks or (not refreshes and room.state in ("draft", "closed")):
                continue
            task = asyncio.create_task(self._tick_logged(room.event_id), name=f"tick {room.event_id}")
            self._ticks[room.event_id] = task
            task.add_done_callback(partial(self._ended, room.event_id))
        if not self._quiet >= self.rooms.known.keys() or self._heartbeat_gaps:
            return None
        return Quiet(min((self.frames.quiet_for_s(event_id) for event_id in self._quiet), default=QUIET_S))

    def _ended(self, event_id: str, _task: asyncio.Task[None]) -> None:
        self._ticks.pop(event_id, None)

    async def drain(self) -> None:
        """Waits for the running ticks and the sessions they are ending; nothing runs afterwards."""
        try:
            async with asyncio.timeout(DRAIN_TIMEOUT_S):
                await asyncio.gather(*self._ticks.values())
                await self.sessions.drain()
        except TimeoutError:
            log.warning("gatekeeper.drain_timed_out", ticks=len(self._ticks))

    async def raise_counters(self) -> Quiet:
        """Every 5 s, or rarely if nobody writes: raises each counter to the highest number in the database."""
        for room in list(self.rooms.known.values()):
            async with LineRepository.reading(self.db, room.event_id, room.epoch) as repository:
                lanes = await repository.lanes()
            with suppress(*REDIS_AWAY):  # other rooms may be on another Redis node
                for lane, (_, tail) in lanes.items():
                    await self.line.raise_counter(room.event_id, room.epoch, lane, tail)
        return Quiet()

    async def _refresh(self) -> None:
        """Reads the list of rooms, and which of them may have lost heartbeats."""
        await self.rooms.refresh()
        rooms = list(self.rooms.known.values())
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                if self._heartbeat_gaps >= self.rooms.known.keys():
                    await self.heartbeats.forget_dead(rooms)  # every room has been ticked with the gap
                self._heartbeat_gaps = await self.heartbeats.has_gap(rooms)
        except REDIS_AWAY:
            self._heartbeat_gaps = set(self.rooms.known)

    async def _tick_logged(self, event_id: str) -> None:
        request_fields.set({"event_id": event_id})  # of this tick's own task
        try:
            await self.tick(event_id)
            self._without_redis.discard(event_id)
        except REDIS_AWAY as away:
            if event_id not in self._without_redis:
                log.error("gatekeeper.redis_unavailable", event_id=event_id, error=type(away).__name__)
            self._without_redis.add(event_id)
            self._quiet.discard(event_id)
            await self._frame_from_db(await self.rooms.get(event_id))
        except DB_AWAY as away:
            log.warning("gatekeeper.database_unavailable", event_id=event_id, error=type(away).__name__)
        except Exception:
            log.exception("gatekeeper.tick_failed", event_id=event_id)

    async def frame(self, event_id: str) -> LineFrame:
        """The last frame of the present epoch, or that of a tick made now."""
        room = await self.rooms.get(event_id)
        last = self.frames.last.get(event_id)
        if last is not None and last.epoch == room.epoch:
            return last
        try:
            return await self.tick(event_id)
        except REDIS_AWAY:
            return await self._frame_from_db(room)

    async def apply_config(self, room: WaitingRoom) -> None:
        """Writes a changed room to Redis and ticks it; without Redis a later tick does so."""
        try:
            await self.line.configure(room)
        except (LineNotReady, StaleEpoch):
            pass  # the tick rebuilds it
        except REDIS_AWAY as away:
            log.warning("room.config_not_applied", event_id=room.event_id, error=type(away).__name__)
            return
        await self.tick(room.event_id)

    async def tick(self, event_id: str) -> LineFrame:
        """Runs one tick; the frame it ended with."""
        async with self._locks.setdefault(event_id, asyncio.Lock()):
            with TICK_SECONDS.time():
                return await self._tick_or_rebuild(event_id)

    async def _tick_or_rebuild(self, event_id: str) -> LineFrame:
        try:
            return await self._tick_once(await self.rooms.get(event_id))
        except StaleEpoch:
            await self.rooms.read(event_id)
        except LineNotReady:
            pass
        await self.recovery.rebuild(event_id)
        with suppress(LineNotReady, StaleEpoch):  # another process has rebuilt it meanwhile
            return await self._tick_once(await self.rooms.get(event_id))
        return await self._frame_from_db(await self.rooms.read(event_id))

    async def _frame_from_db(self, room: WaitingRoom) -> LineFrame:
        async with LineRepository.reading(self.db, room.event_id, room.epoch) as repository:
            return self.frames.frame_from_db(room, await repository.lanes())

    async def _tick_once(self, room: WaitingRoom) -> LineFrame:
        heartbeat_gap = room.event_id in self._heartbeat_gaps
        if heartbeat_gap:
            HEARTBEAT_GAP_TICKS.inc()
        stock = await self.stock_cache.get(room.event_id)
        reply = await run_tick(self.line, room, heartbeat_gap=heartbeat_gap, stock=stock)
        await self._save(room, reply)
        if reply.due:
            self.sessions.end_soon(room, reply.due)
        if reply.state["config_version"] < room.version:
            await self.line.configure(room)
        elif reply.state["config_version"] > room.version:
            await self.rooms.read(room.event_id)  # another process changed the room; it may have a new lane
        frame = self.frames.frame_after_tick(room, reply.state)
        if _is_quiet(room, frame, reply):
            self._quiet.add(room.event_id)
        elif room.event_id in self._quiet:
            self._quiet.discard(room.event_id)
            wake("queue")
        await self.frames.publish(frame)
        WAITING.labels(room.event_id).set(sum(lane.tail_seq - lane.head_seq for lane in frame.lanes.values()))
        CALLED.labels(room.event_id)  # 0 until somebody is called: an alarm compares with it
        ROOM_OPEN.labels(room.event_id).set(frame.state == "open")
        IN_PROGRESS.labels(room.event_id).set(reply.state["in_progress"])
        (self.held_back.add if reply.state["held_back"] else self.held_back.discard)(room.event_id)
        ACTIVE.labels(room.event_id).set(reply.state["called"] + reply.state["active"])
        for at in reply.state["lanes"] if len(room.lanes) > 1 else ():
            LANE_CONTENDED_CALLS.labels(room.event_id, at["lane"]).set(at["contended_calls"])
            LANE_FAIR_SHARE.labels(room.event_id, at["lane"]).set(at["fair_share"])
        return frame

    async def _save(self, room: WaitingRoom, reply: TickReply) -> None:
        """Saves changes and heads in one transaction; only then they are acknowledged."""
        heads = {entry["lane"]: entry["head_seq"] for entry in reply.state["lanes"]}
        last = self.frames.last.get(room.event_id)
        moved = last is None or any(
            lane not in last.lanes or last.lanes[lane].head_seq != head for lane, head in heads.items()
        )
        if not reply.changes and not moved:
            return
        generation, began_s = reply.state["generation"], time.perf_counter()
        async with self.db.begin() as connection:
            repository = LineRepository(connection, room.event_id, room.epoch)
            await repository.fence()
            if not await repository.is_current_generation(generation):
                raise LineNotReady
            saved = await repository.save_tick_events(reply.changes)
            await repository.save_heads(reply.state["lanes"])
            await repository.emit(called=saved.called, expired=saved.ended)
        _count(room.event_id, saved)
        if sale_log.on:
            state = reply.state
            sale_log.write(
                "sale.admission", event_id=room.event_id, called=len(saved.called), missed=saved.missed,
                expired=len(saved.ended), void=len(saved.void), heads=heads, rate_per_s=room.rate_per_s,
                active=state["called"] + state["active"], ms=round((time.perf_counter() - began_s) * 1000, 2),
            )  # fmt: skip
        for lane, seqs in by_lane(saved.void).items():
            await self.line.undo_call(room, lane, seqs, generation=generation)
        await self.sessions.free_slots(room.event_id, room.epoch, saved.ended_before)  # else it is called every tick
        if reply.changes:
            await self.line.acknowledge(room, generation=generation, up_to=reply.changes[-1].number)


async def run_tick(line: RedisLine, room: WaitingRoom, *, heartbeat_gap: bool, stock: Stock) -> TickReply:
    """Runs the script of a tick once: it calls and expires places and says how the line stands. Raises `LineNotReady`,
    `StaleEpoch`.
    """
    reply = await line.run_in_time(
        TICK,
        room.event_id,
        room.ranking,
        lane_keys=redis_keys.of_lanes(room.event_id, room.epoch, room.lanes),
        heartbeat_gap=int(heartbeat_gap),
        stock_available=stock.available,
        holders_holding=stock.holders_holding,
        holds_begun=stock.holds_begun,
        holds_released=stock.holds_released,
        stock_version=stock.version,
        stock=stock.level,
        others_ms=line.slower_clock_ms(),
        lanes=room.lanes,
    )
    await line.check(reply, room.event_id, room.epoch)
    _, state, changes, due = reply
    entry = room.ranking.entry
    return TickReply(
        orjson.loads(state),
        [one._replace(join_seq=entry(one.lane, one.join_seq)) for one in map(parse_tick_event, changes)],
        [one._replace(join_seq=entry(one.lane, one.join_seq)) for one in map(parse_due_session, due)],
    )


def _is_quiet(room: WaitingRoom, frame: LineFrame, reply: TickReply) -> bool:
    """Whether the next ticks can change nothing: without a fan, a change to store, a throttle or a time that comes."""
    state = reply.state
    counts = state["called"] or state["active"] or state["backlog"] or reply.changes
    calling = room.state not in ("draft", "closed")
    waiting = calling and frame.has_waiting
    return not (counts or waiting or frame.throttled or room.changes_within(state["now_ms"], SOON_MS))


def _count(event_id: str, saved: TickResult) -> None:
    CALLED.labels(event_id).inc(len(saved.called))
    for wait_s in saved.waits_s:
        WAIT_SECONDS.labels(event_id).observe(wait_s)
    for lane, seqs in by_lane(saved.called).items():
        LANE_CALLED.labels(lane).inc(len(seqs))
    MISSED.inc(saved.missed)
    VOIDED.inc(len(saved.void))
    ENDED.labels("expired").inc(len(saved.ended))


ADMIT_NOW = Script.load(__package__, "admit_now", prelude=PRELUDE)


async def admit_now(line: RedisLine, gatekeeper: Gatekeeper, room: WaitingRoom, count: int) -> int:
    """Runs one tick that may call `count` fans beyond the rate; how many it called. Raises `Unavailable`."""
    before = await _request_admissions(line, room, count)
    await gatekeeper.tick(room.event_id)
    called = await _request_admissions(line, room, 0) - before
    MANUALLY_ADMITTED.inc(called)
    return called


async def _request_admissions(line: RedisLine, room: WaitingRoom, count: int) -> int:
    """Allows the next tick `count` calls beyond the rate; how many such calls were made so far."""
    reply = await line.run(ADMIT_NOW, room.event_id, room.ranking, count=count)
    if reply_status(reply) != "ok":
        raise Unavailable("The line is being rebuilt. Nobody was called. Try again.")
    return int(reply[1])
