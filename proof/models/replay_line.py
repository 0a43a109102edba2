"""The line's model on the real queue: its scripts, its statements and the functions that join them."""

from contextlib import AsyncExitStack
from typing import Any

from sqlalchemy import text, update
from sqlalchemy.ext.asyncio import create_async_engine

from proof.models.line import PROCESSES, LineState
from proof.models.replays import SteppedProcess, View
from services.queue.app import build
from services.queue.line.rebuild import Recovery
from services.queue.line.redis_line import Allocation, LineNotReady, RedisLine
from services.queue.line.repository import LineRepository
from services.queue.places.join import (
    BEGIN_SHARED,
    INSERT_PLACES,
    LaneJoinBatch,
    _insert,
    insert_places_in_db,
    join_seqs,
)
from services.queue.places.sessions import jti
from services.queue.rooms.model import WaitingRoom
from services.queue.rooms.store import EXCLUSIVE_LOCK
from services.queue.settings import Settings
from services.queue.tables import metadata, outbox_cursor
from services.queue.tables import room as room_table
from services.queue.tuning import Tuning
from shared.contracts.queue import JoinRequest
from shared.postgres.engine import fenced
from shared.redis.client import connect
from tests.queue.conftest import EVENT, Inventory, Queue

CLAIM_S = 20
MISFORTUNES = ("dies", "Redis", "later", "in the database", "raises the generation")
TABLES = ", ".join(str(table) for table in metadata.sorted_tables if table is not outbox_cursor)


class SteppedLine(RedisLine):
    """An actor stops before it writes what it has read for a rebuild."""

    actor: SteppedProcess

    async def rebuild(self, room: WaitingRoom, **named: Any) -> bool:
        await self.actor.stop("rebuild")
        return await super().rebuild(room, **named)


class RealLine:
    """The queue in the hands of the model."""

    def __init__(self, db: Any, redis: Any) -> None:
        self.db, self.redis = db, redis
        self.actors = {p: SteppedProcess() for p in PROCESSES}

    @classmethod
    async def open(cls, stack: AsyncExitStack, postgres_url: str, redis_url: str) -> "RealLine":
        db, redis = create_async_engine(postgres_url), connect(redis_url)
        stack.push_async_callback(db.dispose)
        stack.push_async_callback(redis.aclose)
        real = cls(db, redis)
        stack.push_async_callback(real.stop)
        return real

    async def begin(self) -> None:
        """An open room with one slot, in which nobody waits."""
        await self.stop()
        await self.redis.flushall()
        state = build(Settings(), self.db, self.redis, Inventory().client(), Tuning(ramp_after_loss=False))
        self.queue = queue = Queue(state, self.db, self.redis, Inventory())
        await queue.sql(f"TRUNCATE {TABLES}")
        await queue.open(
            max_active=1, max_misses=1, claim_window_s=CLAIM_S, liveness_window_s=600, returning_share=0
        )  # fmt: skip
        await queue.tick(1)
        self.line, self.room = state.line, await state.rooms.read(EVENT)
        self.first_generation = self.room.generation
        self.snapshot: dict[bytes, bytes] | None = None
        self.answered, self.pending, self.batches = set[tuple[int, str]](), set[tuple[int, int]](), 0

    async def stop(self) -> None:
        for actor in self.actors.values():
            await actor.die()

    async def do(self, label: str) -> None:
        actor, _, action = label.partition(" ")
        if actor == "Redis":
            await self._change_redis(action)
        elif actor.isdigit():
            await self._come_back(int(actor), action)
        elif action == "dies":
            await self.actors[int(actor[1])].die()
            self.pending = {each for each in self.pending if each[1] != int(actor[1])}
        elif action.endswith("at last"):
            n = int(action.split()[1])
            await self.line.commit_join(self.room, 0, "", {n})
            self.pending.discard((n, int(actor[1])))
        elif self.actors[int(actor[1])].at:
            await self.actors[int(actor[1])].advance()
            if action == "rebuilds":
                await self._open_bucket()
        else:
            await self._start(int(actor[1]), action)

    async def _change_redis(self, action: str) -> None:
        if action == "saves":
            keys = [key async for key in self.redis.scan_iter()]
            self.snapshot = {key: value for key in keys if (value := await self.redis.dump(key))}
            return
        await self.redis.flushall()
        for key, value in (self.snapshot or {}).items() if action == "goes back" else ():
            await self.redis.restore(key, 0, value)

    async def _come_back(self, n: int, action: str) -> None:
        if action == "is here":
            await self.line.touch(EVENT, 1, 0, [n])
            return
        [holder] = [
            row.holder for row in await self.queue.sql("SELECT holder FROM queue.place WHERE join_seq = :n", n=n)
        ]
        assert await self.queue.status((n, holder)) == ["waiting"]

    async def _open_bucket(self) -> None:
        """What the first tick after a rebuild does: it calls nobody, as the bucket is empty."""
        if await self.queue.room_hash():
            await self.redis.hset(f"queue:{{{EVENT}}}:room", mapping={"shown": "open", "tokens": 1000})

    async def _start(self, p: int, action: str) -> None:
        actor = self.actors[p]
        match action.split():
            case ["numbers", fan, "in", *_]:
                await self._number_in_database(p, fan)
            case ["numbers", fan]:
                await actor.start(lambda it: self._join(it, p, fan))
            case ["ticks", *later]:
                if later:
                    self.line.clock_offset_ms += 1000 * (CLAIM_S + 1)
                await actor.start(self._tick)
            case ["claims", n]:
                await actor.start(lambda it: self._claim(it, int(n)))
            case ["ends", n]:
                await actor.start(lambda it: self._end(it, int(n)))
            case ["frees", *_]:
                ended = await self.queue.sql("SELECT join_seq FROM queue.place WHERE end_reason IS NOT NULL")
                await self.line.end(EVENT, 1, 0, [row.join_seq for row in ended])
            case ["raises", "the", "counter"]:
                await self.line.raise_counter(EVENT, 1, 0, await self._tail())
            case ["raises", "the", "generation"]:
                await actor.start(self._rebuild)

    # -- what a process does -------------------------------------------------------------------------------------------

    def _batch(self, fan: str) -> LaneJoinBatch:
        self.batches += 1
        return LaneJoinBatch(self.room, 0, f"batch-{self.batches}", {fan: JoinRequest(holder=fan)})

    async def _join(self, actor: SteppedProcess, p: int, fan: str) -> None:
        """As `Joins` does for a batch of one, which tries once to get a number from Redis."""
        batch = self._batch(fan)
        numbers = await self.line.allocate(self.room, 0, batch.batch_id, count=1)
        assert numbers.outcome == "ok", numbers
        await actor.stop("open insert")
        async with fenced(self.db, BEGIN_SHARED.format(fence=self.room.fence)) as driver:
            await actor.stop("insert")
            placed = await _insert(driver, batch, numbers, INSERT_PLACES, batch.pending)
        if placed:
            await actor.stop("commit")
            await self._commit(p, fan, numbers)
            return
        if known := await self._known(fan):
            self.answered.add((known, fan))
            return
        tail = await self._tail()
        await actor.stop("raise")
        await self.line.raise_counter(EVENT, 1, 0, tail)
        await actor.stop("number")
        await self._number_in_database(p, fan)

    async def _commit(self, p: int, fan: str, numbers: Allocation) -> None:
        try:
            await self.line.commit_join(self.room, 0, numbers.member, {numbers.first})
        except LineNotReady:
            self.pending.add((numbers.first, p))
        self.answered.add((numbers.first, fan))

    async def _known(self, fan: str) -> int:
        async with LineRepository.reading(self.db, EVENT, 1) as repository:
            places = await repository.live_places([fan])
        return places[fan][1] if places else 0

    async def _number_in_database(self, p: int, fan: str) -> None:
        placed = join_seqs(await insert_places_in_db(self.db, self._batch(fan)))
        self.pending |= {(n, p) for n in placed}
        self.answered |= {(n, fan) for n in placed or {await self._known(fan)}}

    async def _tick(self, actor: SteppedProcess) -> None:
        """As `Gatekeeper` does."""
        await self.redis.hset(f"queue:{{{EVENT}}}:room", "cursor:0", 0)
        reply = await self.queue.tick_unsaved()
        generation = reply.state["generation"]
        await actor.stop("open save")
        async with self.db.begin() as connection:
            repository = LineRepository(connection, EVENT, 1)
            await repository.fence()
            is_current = await repository.is_current_generation(generation)
            await actor.stop("save")
            if not is_current:
                return
            saved = await repository.save_tick_events(reply.changes)
            await repository.save_heads(reply.state["lanes"])
        if saved.void:
            await actor.stop("undo")
            await self.line.undo_call(self.room, 0, [n for _, n in saved.void], generation=generation)
            await self.queue.state.sessions.free_slots(EVENT, 1, saved.ended_before)
        await actor.stop("acknowledge")
        if reply.changes:
            await self.line.acknowledge(self.room, generation=generation, up_to=reply.changes[-1].number)

    async def _claim(self, actor: SteppedProcess, n: int) -> None:
        """As `Claims` does."""
        generation, [claim] = await self.line.claim(EVENT, 1, 0, [n])
        assert claim.outcome == "admitted", claim
        await actor.stop("open claim")
        async with self.db.begin() as connection:
            repository = LineRepository(connection, EVENT, 1)
            await repository.fence()
            await actor.stop("store claim")
            row = (0, n, claim.call, jti(1, 0, n, claim.call), claim.until_ms)
            await repository.insert_claims([row], generation=generation)

    async def _end(self, actor: SteppedProcess, n: int) -> None:
        """As `SessionEnder` does."""
        async with self.db.begin() as connection:
            await LineRepository(connection, EVENT, 1).end([(0, n)], end_reason="left", unclaimed=False)
        await actor.stop("free")
        await self.line.end(EVENT, 1, 0, [n])

    async def _rebuild(self, actor: SteppedProcess) -> None:
        """As `Recovery` does, whose steps are the same for every reason."""
        async with self.db.begin() as connection:
            await connection.execute(EXCLUSIVE_LOCK, {"event_id": EVENT})
            raised = update(room_table).values(generation=room_table.c.generation + 1)
            await connection.execute(raised.where(room_table.c.event_id == EVENT))
        rooms = self.queue.state.rooms
        room = await rooms.read(EVENT)
        await actor.stop("read")
        line = SteppedLine(self.redis, rooms.ranking, clock_offset_ms=self.line.clock_offset_ms)
        line.actor = actor
        await Recovery(self.db, line, rooms, ramp=False)._write_redis(room, ramp=False)

    async def _tail(self) -> int:
        async with self.db.connect() as connection:
            return int(await connection.scalar(text("SELECT max(join_seq) FROM queue.place")) or 0)

    # -- comparison ----------------------------------------------------------------------------------------------------

    def shown(self, state: LineState) -> View:
        redis, database = state.redis, state.database
        return {
            "generation": database.generation, "places": sorted(database.places), "ended": sorted(database.ended),
            "calls": sorted(database.calls), "head": database.head, "answered": sorted(state.answered),
            "pending": sorted(state.pending), "actors": [process.at for process in state.processes],
            "redis": redis and {
                "generation": redis.generation, "counter": redis.counter, "head": redis.head,
                "in flight": sorted(n for n, _ in redis.in_flight), "alive": sorted(redis.alive),
                "taken": sorted(redis.taken), "done": sorted(redis.done), "called": sorted(redis.called),
                "active": sorted(redis.active), "unwritten": sorted((kind, n) for _, kind, n in redis.unwritten),
            },
        }  # fmt: skip

    async def read(self) -> View:
        places = await self.queue.sql("SELECT join_seq, holder, end_reason FROM queue.place ORDER BY join_seq")
        calls = await self.queue.sql(
            "SELECT join_seq, CASE WHEN end_reason IS NOT NULL AND state IN ('called', 'claimed') THEN 'ended' "
            "ELSE state END FROM queue.admission JOIN queue.place USING (event_id, epoch, lane, join_seq) "
            "ORDER BY join_seq"
        )
        [(generation, head)] = await self.queue.sql(
            "SELECT r.generation, l.head_seq FROM queue.room r JOIN queue.lane l USING (event_id, epoch)"
        )
        return {
            "generation": generation - self.first_generation, "places": [(row.join_seq, row.holder) for row in places],
            "ended": [row.join_seq for row in places if row.end_reason], "calls": [(n, state) for n, state in calls],
            "head": head, "answered": sorted(self.answered), "pending": sorted(self.pending),
            "actors": [actor.at for actor in self.actors.values()], "redis": await self._read_redis(),
        }  # fmt: skip

    async def _read_redis(self) -> View | None:
        room, key = await self.queue.room_hash(), f"queue:{{{EVENT}}}:1:"
        if not room:
            return None
        bits = [await self._bits(f"{key}0:alive:{slot}") for slot in range(3)]
        flying = [m.decode() async for m, _ in self.redis.zscan_iter(f"{key}0:inflight")]
        changes = [m.decode().split(":") async for m, _ in self.redis.zscan_iter(f"{key}unwritten")]
        slots = {
            name: sorted(int(m.split(":")[1]) for m in await self.queue.sorted_set(name))
            for name in ("called", "active")
        }
        return {
            "generation": int(room["generation"]) - self.first_generation, "counter": int(room["join_seq:0"]),
            "head": int(room["head_seq:0"]), "in flight": sorted(int(m.split(":")[0]) for m in flying if m != "mark"),
            "alive": sorted(set().union(*bits)), "taken": sorted(await self._bits(f"{key}0:taken")),
            "done": sorted(await self._bits(f"{key}0:done")), **slots,
            "unwritten": sorted((c[1].replace("spent", "missed"), int(c[3])) for c in changes if len(c) > 1),
        }  # fmt: skip

    async def _bits(self, key: str) -> set[int]:
        bitmap = await self.redis.get(key) or b""
        return {n for n in range(1, len(bitmap) * 8) if bitmap[n // 8] & 128 >> n % 8}
