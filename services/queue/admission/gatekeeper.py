"""The gatekeeper: every turn it runs the tick, writes what the tick did, acknowledges it and shows the frame.

Any number of gatekeepers run, without a leader. The frame follows the ledger: a head is shown when it is on disk.

Admission by hand: an operator calls some fans beyond the rate, in one turn, and hears how many it called.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from services.queue import redis_keys
from services.queue.admission.publisher import FramePublisher
from services.queue.admission.stock import StockCache
from services.queue.line.heartbeats import Heartbeats
from services.queue.line.redis_line import ANSWER_WITHIN_S, LineNotReady, RedisLine
from services.queue.line.replies import TickReply
from services.queue.line.repository import LineRepository, TickResult, by_lane
from services.queue.line.sessions import Sessions
from services.queue.metrics import (
    ACTIVE,
    CALLED,
    DEAF,
    ENDED,
    HANDED,
    LANE_CALLED,
    LANE_CONTESTED,
    LANE_DUE,
    MISSED,
    TICK_SECONDS,
    VOIDED,
    WAITING,
)
from services.queue.recovery import Recovery
from services.queue.rooms.model import WaitingRoom
from services.queue.rooms.store import Rooms
from shared.contracts.frames import LineFrame
from shared.postgres.engine import DB_AWAY, AsyncEngine
from shared.redis.client import REDIS_AWAY
from shared.redis.scripts import Script, word
from shared.runtime.logging import data
from shared.web.problems import StaleEpoch, Unavailable

log = logging.getLogger("onsale.queue")
QUIET_EVERY = 5
REST_S = 3.0


@dataclass
class Gatekeeper:
    """Turns rooms. A room's turn never overlaps itself in one process, so a frame never goes back."""

    db: AsyncEngine
    line: RedisLine
    rooms: Rooms
    frames: FramePublisher
    board: StockCache
    life: Heartbeats
    sessions: Sessions
    recovery: Recovery
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)
    _turns: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _deaf: set[str] = field(default_factory=set)
    _away: set[str] = field(default_factory=set)
    _beat: int = 0

    async def tick_all(self) -> None:
        """Starts a turn in every room that is not in one. Rooms where nothing moves take every fifth beat."""
        self._beat += 1
        if self._beat % QUIET_EVERY == 1:
            await self._refresh()
        quiet = self._beat % QUIET_EVERY != 1
        for room in list(self.rooms.known.values()):
            if room.event_id in self._turns or (quiet and room.state in ("draft", "closed")):
                continue
            task = asyncio.create_task(self._guarded(room.event_id), name=f"turn {room.event_id}")
            self._turns[room.event_id] = task
            task.add_done_callback(self._ended(room.event_id))

    def _ended(self, event_id: str) -> Callable[[asyncio.Task[None]], None]:
        def forget(_task: asyncio.Task[None]) -> None:
            self._turns.pop(event_id, None)

        return forget

    async def drain(self) -> None:
        """Finishes the turns that are under way, and the sessions they are ending; nothing runs after it."""
        try:
            async with asyncio.timeout(REST_S):
                await asyncio.gather(*self._turns.values())
                await self.sessions.rest()
        except TimeoutError:
            log.warning("gatekeeper.cut_off", extra=data(turns=len(self._turns)))

    async def raise_counters(self) -> None:
        """Every 5 s: no counter stays below the ledger's highest number."""
        for room in list(self.rooms.known.values()):
            async with self.db.connect() as connection:
                lanes = await LineRepository(connection, room.event_id, room.epoch).lanes()
            with suppress(*REDIS_AWAY):  # other rooms may be with another engine
                for lane, (_, tail) in lanes.items():
                    await self.line.raise_counter(room.event_id, room.epoch, lane, tail)

    async def _refresh(self) -> None:
        """What all rooms share: the ledger's list, and whether signs of life arrive."""
        await self.rooms.refresh()
        rooms = list(self.rooms.known.values())
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                if self._deaf >= self.rooms.known.keys():
                    await self.life.forget_dead(rooms)  # every room has had its deaf turns
                self._deaf = await self.life.has_gap(rooms)
        except REDIS_AWAY:
            self._deaf = set(self.rooms.known)

    async def _guarded(self, event_id: str) -> None:
        try:
            await self.turn(event_id)
            self._away.discard(event_id)
        except REDIS_AWAY as away:
            if event_id not in self._away:
                log.error("gatekeeper.engine_away", extra=data(event_id=event_id, error=type(away).__name__))
            self._away.add(event_id)
            await self._unready(await self.rooms.get(event_id))
        except DB_AWAY as away:
            log.warning("gatekeeper.ledger_away", extra=data(event_id=event_id, error=type(away).__name__))
        except Exception:
            log.exception("gatekeeper.turn_failed", extra=data(event_id=event_id))

    async def frame(self, event_id: str) -> LineFrame:
        """The last frame of the present epoch, or that of a turn made now."""
        room = await self.rooms.get(event_id)
        last = self.frames.last.get(event_id)
        if last is not None and last.epoch == room.epoch:
            return last
        try:
            return await self.turn(event_id)
        except REDIS_AWAY:
            return await self._unready(room)

    async def apply_config(self, room: WaitingRoom) -> None:
        """Makes the engine follow a changed room at once; one that is away or not filled learns it later."""
        try:
            await self.line.configure(room)
        except (LineNotReady, StaleEpoch):
            pass  # the turn fills it
        except REDIS_AWAY as away:
            log.warning("room.not_told", extra=data(event_id=room.event_id, error=type(away).__name__))
            return
        await self.turn(room.event_id)

    async def turn(self, event_id: str) -> LineFrame:
        """One whole turn; the frame it ended with."""
        async with self._locks.setdefault(event_id, asyncio.Lock()):
            with TICK_SECONDS.time():
                return await self._turn(event_id)

    async def _turn(self, event_id: str) -> LineFrame:
        try:
            return await self._tick(await self.rooms.get(event_id))
        except StaleEpoch:
            await self.rooms.read(event_id)
        except LineNotReady:
            pass
        await self.recovery.rebuild(event_id)
        with suppress(LineNotReady, StaleEpoch):  # another process filled it anew in between
            return await self._tick(await self.rooms.get(event_id))
        return await self._unready(await self.rooms.read(event_id))

    async def _unready(self, room: WaitingRoom) -> LineFrame:
        async with self.db.connect() as connection:
            return self.frames.unready(room, await LineRepository(connection, room.event_id, room.epoch).lanes())

    async def _tick(self, room: WaitingRoom) -> LineFrame:
        deaf = room.event_id in self._deaf
        if deaf:
            DEAF.inc()
        ticked = await self.line.tick(room, deaf=deaf, stock=await self.board.of(room.event_id))
        await self._write(room, ticked)
        if ticked.due:
            self.sessions.end_soon(room, ticked.due)
        if ticked.state["config_version"] < room.version:
            await self.line.configure(room)
        elif ticked.state["config_version"] > room.version:
            await self.rooms.read(room.event_id)  # another process was told first; it may have made a lane
        frame = self.frames.ticked(room, ticked.state)
        await self.frames.show(frame)
        WAITING.labels(room.event_id).set(sum(lane.tail_seq - lane.head_seq for lane in frame.lanes.values()))
        ACTIVE.labels(room.event_id).set(ticked.state["called"] + ticked.state["active"])
        for at in ticked.state["lanes"] if len(room.lanes) > 1 else ():
            LANE_CONTESTED.labels(room.event_id, at["lane"]).set(at["contested"])
            LANE_DUE.labels(room.event_id, at["lane"]).set(at["due"])
        return frame

    async def _write(self, room: WaitingRoom, ticked: TickReply) -> None:
        """Changes and heads in one transaction; only then are they acknowledged."""
        heads = {entry["lane"]: entry["head_seq"] for entry in ticked.state["lanes"]}
        last = self.frames.last.get(room.event_id)
        moved = last is None or any(
            lane not in last.lanes or last.lanes[lane].head_seq != head for lane, head in heads.items()
        )
        if not ticked.changes and not moved:
            return
        fill = ticked.state["fill"]
        async with self.db.begin() as connection:
            of = LineRepository(connection, room.event_id, room.epoch)
            await of.fence()
            if not await of.filled_by(fill):
                raise LineNotReady
            written = await of.record(ticked.changes)
            await of.save_heads(ticked.state["lanes"])
            await of.tell("called", written.called)
            await of.tell("expired", written.spent)
        _count(written)
        for lane, seqs in by_lane(written.void).items():
            await self.line.void(room, lane, seqs, fill=fill)
        if ticked.changes:
            await self.line.acknowledge(room, fill=fill, up_to=ticked.changes[-1].number)


def _count(written: TickResult) -> None:
    CALLED.inc(len(written.called))
    for lane, seqs in by_lane(written.called).items():
        LANE_CALLED.labels(lane).inc(len(seqs))
    MISSED.inc(written.missed)
    VOIDED.inc(len(written.void))
    ENDED.labels("expired").inc(len(written.spent))


ADMIT = Script.load(__package__, "admit")


async def admit_now(line: RedisLine, gatekeeper: Gatekeeper, room: WaitingRoom, count: int) -> int:
    """Runs one turn that may make so many calls beyond the rate; how many it made. Raises `Unavailable`."""
    before = await _hand(line, room, count)
    await gatekeeper.turn(room.event_id)
    called = await _hand(line, room, 0) - before
    HANDED.inc(called)
    return called


async def _hand(line: RedisLine, room: WaitingRoom, count: int) -> int:
    """Lets the next tick call so many; how many were called by hand until now."""
    reply = await line.ask(room.event_id, ADMIT, room=redis_keys.room(room.event_id), epoch=room.epoch, count=count)
    if word(reply) != "ok":
        raise Unavailable("The line is being filled anew. Nobody was called.")
    return int(reply[1])
