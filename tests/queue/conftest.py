"""A queue on real PostgreSQL and Redis, with a fake inventory."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from redis.asyncio import Redis
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.queue.admission.gatekeeper import run_tick
from services.queue.app import build, create_app
from services.queue.line.invariants import check_invariants
from services.queue.line.redis_line import Stock, TickReply
from services.queue.places.purchases import Purchases
from services.queue.rooms.model import RequestedBy
from services.queue.rooms.store import Action
from services.queue.settings import Settings
from services.queue.state import State
from services.queue.tuning import Tuning
from shared.concurrency.background import Loops
from shared.contracts.admin.queue import QueueInvariant
from shared.contracts.event_file import EventFile
from shared.contracts.frames import Event, LaneHead, LineFrame, LoadFrame, StockFrame
from shared.contracts.inventory import EndSessions, InventoryClient, MinPassEpoch, SessionEnd, SessionsAnswer
from shared.contracts.queue import (
    Claimed,
    JoinBatch,
    Joined,
    JoinRequest,
    PlaceRef,
    PlacesQuestion,
    PlaceState,
    QueueClient,
)
from shared.messaging.log import RedisStreams, log_stream
from shared.redis.client import connect
from shared.rpc import ServiceClient
from shared.runtime.clock import now_ms
from shared.security.auth import AdminKeys
from shared.security.tokens import development_keys
from shared.web.app import internal, public
from shared.web.parts import open_parts, parts_of
from tests.support.wait import wait_until

EVENT = "show"
TEST = RequestedBy("test")
ROOM_KEY = f"queue:{{{EVENT}}}:room"
ROOM_URL, EVENT_URL = f"/admin/events/{EVENT}/room", f"/admin/queue/events/{EVENT}"
UNREACHABLE_REDIS_URL = "redis://127.0.0.1:1/0"
OPERATORS = {"viewer": "vic", "operator": "oli", "admin": "ann"}
batch_ids = itertools.count(1)


def event_file(**room) -> EventFile:
    return EventFile.model_validate({
        "event_id": EVENT, "name": "A show", "venue": "A hall", "currency": "EUR",
        "starts_at": "2027-03-05T19:30:00Z", "room": {"rate_per_s": 1000, "burst": 1000, **room},
        "sections": [{"section_id": "GA", "name": "Floor", "kind": "ga", "capacity": 10, "price_minor": 100}],
    })  # fmt: skip


def load_frame(service: str = "inventory", process: str = "i-1", **facts: Any) -> LoadFrame:
    """The load of a healthy process, with these differences."""
    healthy = {"work": 2.0, "done_per_s": 100.0, "p95_ms": 20.0}
    return LoadFrame.model_validate({"service": service, "process": process, "at_ms": now_ms(), **healthy, **facts})


def line_frame(*, head: int = 0, tail: int = 1000, **facts: Any) -> LineFrame:
    """The frame of an open line, with these differences."""
    return LineFrame.model_validate({
        "event_id": EVENT, "epoch": 1, "version": 1, "ready": True, "at_ms": 1, "state": "open", "rate_per_s": 100.0,
        "lanes": {0: LaneHead(head_seq=head, tail_seq=tail)}, **facts,
    })  # fmt: skip


def fan_names(count: int, name: str = "fan") -> list[str]:
    return [f"{name}-{n}" for n in range(1, count + 1)]


@dataclass
class Inventory:
    """A fake inventory that records its requests. `held_until_ms`: holders with a live reservation, and its end."""

    held_until_ms: dict[str, int] = field(default_factory=dict)
    ended: list[EndSessions] = field(default_factory=list)
    unavailable: bool = False
    stock: StockFrame | None = None
    stock_requests: int = 0
    min_pass_epochs: list[int] = field(default_factory=list)

    def client(self) -> InventoryClient:
        pool = httpx.AsyncClient(transport=httpx.MockTransport(self._answer))
        return InventoryClient(ServiceClient(pool, "http://inventory", development_keys("service"), name="inventory"))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if self.unavailable:
            raise httpx.ConnectError("unavailable")
        if request.url.path.endswith("/stock"):
            assert self.stock is not None
            self.stock_requests += 1
            return httpx.Response(200, json=self.stock.model_dump())
        if request.url.path.endswith("/min-epoch"):
            self.min_pass_epochs.append(MinPassEpoch.model_validate_json(request.content).epoch)
            return httpx.Response(200, content=request.content)
        ending = EndSessions.model_validate_json(request.content)
        self.ended.append(ending)
        ends = [
            SessionEnd(outcome="until", until_ms=self.held_until_ms[session.holder])
            if session.holder in self.held_until_ms
            else SessionEnd(outcome="gone")
            for session in ending.sessions
        ]
        return httpx.Response(200, json=SessionsAnswer(sessions=ends).model_dump())


@dataclass
class Queue:
    """One queue process without its background loops: a test runs each tick."""

    state: State
    db: AsyncEngine
    redis: Redis
    inventory: Inventory
    time_ms: int = field(default_factory=now_ms)
    epoch: int = 1

    async def open(self, *holders: str, fans: int = 0, **room) -> None:
        """An open room with a full token bucket: no fan waits for tokens. These holders join, or fan-1, fan-2 and so
        on.
        """
        await self.state.rooms.apply(event_file(**room), RequestedBy("test"))
        await self.transition("open")
        if holders or fans:
            await self.join(*holders, *fan_names(fans))

    async def open_and_call(self, *holders: str, fans: int = 0, **room) -> None:
        """The same, and the first tick calls as many as the room admits."""
        await self.open(*holders, fans=fans, **room)
        await self.tick()

    async def transition(self, action: Action) -> None:
        room = await self.state.rooms.transition(EVENT, action, TEST)
        await self.state.gatekeeper.apply_config(room)

    async def configure(self, **settings) -> None:
        """Changes the room as an operator does."""
        room = await self.state.rooms.change(EVENT, settings, TEST)
        await self.state.gatekeeper.apply_config(room)

    async def reset(self) -> None:
        room = await self.state.rooms.reset(EVENT, TEST)
        await self.state.gatekeeper.apply_config(room)

    def advance_clock(self, seconds: float) -> None:
        """Moves Redis' clock by `seconds` from its last position. The time that the test itself takes is not added,
        unless it is longer: only a negative step sets the clock back.
        """
        line = self.state.line
        self.time_ms += round(seconds * 1000)
        if seconds >= 0:
            self.time_ms = max(self.time_ms, now_ms() + line.clock_offset_ms)
        line.clock_offset_ms = self.time_ms - now_ms()

    async def join(
        self, *holders: str, lane: int = 0, may_be_known: bool = False, batch_id: str | None = None
    ) -> list[Joined]:
        joins = [JoinRequest(holder=holder, lane=lane, may_be_known=may_be_known) for holder in holders]
        return await self.join_batch(joins, batch_id=batch_id)

    async def join_batch(self, joins: list[JoinRequest], *, batch_id: str | None = None) -> list[Joined]:
        batch = JoinBatch(event_id=EVENT, batch_id=batch_id or f"batch-{next(batch_ids):06}", joins=joins)
        return (await self.state.joins.join(batch)).joined

    async def join_fans(self, count: int, *, name: str = "fan", lane: int = 0) -> list[Joined]:
        """Joins fan-1, fan-2 and so on in one batch."""
        return await self.join(*fan_names(count, name), lane=lane)

    async def insert_place(self, join_seq: int, holder: str) -> None:
        """Inserts a place into the database alone."""
        await self.sql(
            "INSERT INTO queue.place (event_id, epoch, lane, join_seq, holder) VALUES (:e, 1, 0, :n, :h)",
            e=EVENT, n=join_seq, h=holder,
        )  # fmt: skip

    @asynccontextmanager
    async def blocked_join(self, holder: str) -> AsyncIterator[asyncio.Task[list[Joined]]]:
        """A join whose insert waits, until the block ends, for a transaction that inserts the same holder."""
        async with self.db.connect() as other:
            await other.exec_driver_sql(
                "INSERT INTO queue.place (event_id, epoch, lane, join_seq, holder) "
                f"VALUES ('{EVENT}', 1, 0, 99, '{holder}')"
            )
            joining = asyncio.create_task(self.join(holder))
            await wait_until(self.insert_waits)
            yield joining
            await other.rollback()

    async def insert_waits(self) -> bool:
        """True once the insert of a batch waits for a lock."""
        waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%placed%'"
        return bool(await self.sql(waiting))

    async def tick(self, after_s: float = 0.5) -> LineFrame:
        """One tick of the gatekeeper, `after_s` later."""
        self.advance_clock(after_s)
        return await self.state.gatekeeper.tick(EVENT)

    async def tick_unsaved(self, *, stock: Stock | None = None) -> TickReply:
        """One tick in Redis alone: its calls are not saved to the database."""
        room = await self.state.rooms.get(EVENT)
        stock = stock or await self.state.gatekeeper.stock_cache.get(EVENT)
        return await run_tick(self.state.line, room, heartbeat_gap=False, stock=stock)

    def places(self, *refs: tuple[int, str], lane: int = 0, epoch: int | None = None) -> PlacesQuestion:
        places = [PlaceRef(lane=lane, join_seq=seq, holder=holder) for seq, holder in refs]
        return PlacesQuestion(event_id=EVENT, epoch=epoch or self.epoch, places=places)

    async def status(self, *refs: tuple[int, str]) -> list[PlaceState]:
        return [place.status for place in await self.state.claims.status(self.places(*refs))]

    async def claim(self, *refs: tuple[int, str]) -> list[Claimed]:
        return await self.state.claims.claim(self.places(*refs))

    async def leave(self, *refs: tuple[int, str]) -> list[PlaceState]:
        return await self.state.claims.leave(self.places(*refs))

    async def confirm_order(self, **after) -> None:
        """Writes the event of a confirmed order to the event log."""
        event = Event(type="order.confirmed", event_id=EVENT, aggregate="order/x", after=after)
        await self.redis.xadd(log_stream(EVENT), {"event": event.model_dump_json()})

    def purchases(self) -> Purchases:
        return Purchases(self.db, self.redis, RedisStreams(self.redis, length_max=1000), self.state.sessions)

    async def sql(self, statement: str, **values):
        async with self.db.begin() as connection:
            result = await connection.execute(text(statement), values)
            return result.fetchall() if result.returns_rows else []

    async def called(self) -> list[int]:
        """The called places' numbers, in ascending order."""
        return sorted(int(place.split(":")[1]) for place in await self.sorted_set("called"))

    async def sorted_set(self, name: str) -> dict[str, float]:
        """A sorted set of the line's state, without its mark."""
        key = f"queue:{{{EVENT}}}:{self.epoch}:{name}"
        rows = await self.redis.zrangebyscore(key, "-inf", "(inf", withscores=True)
        return {member.decode(): score for member, score in rows}

    async def room_hash(self) -> dict[str, str]:
        fields = await self.redis.hgetall(ROOM_KEY)
        return {name.decode(): value.decode() for name, value in fields.items()}

    async def write_room_hash(self, fields: dict[str, int]) -> None:
        """Overwrites fields of the room in Redis alone."""
        await self.redis.hset(ROOM_KEY, mapping=fields)

    async def heartbeat(self, *join_seqs: int, lane: int = 0) -> None:
        await self.state.line.touch(EVENT, self.epoch, lane, join_seqs)

    async def end_assumed_liveness(self) -> None:
        """Lets the time pass in which all places are assumed to be live."""
        await self.tick(3 * 30 + 1)

    async def drain_sessions(self) -> None:
        """Waits for the sessions that are being ended."""
        await self.state.sessions.drain()

    async def violations(self) -> list[QueueInvariant]:
        """The invariants that do not hold."""
        room = await self.state.rooms.read(EVENT)
        checked = await check_invariants(
            self.db, self.redis, room, self.state.rules.bypass, clock_offset_ms=self.state.line.clock_offset_ms
        )
        return [invariant for invariant in checked if not invariant.holds]


@pytest.fixture
def inventory() -> Inventory:
    return Inventory()


@pytest.fixture
async def new_queue(
    redis: Redis, redis_url: str, postgres: AsyncEngine, inventory: Inventory
) -> AsyncIterator[Callable[..., Queue]]:
    """Makes queue processes on the same PostgreSQL, and on the same Redis unless another client is given."""
    clients: list[Redis] = []

    def make(client: Redis | None = None, *, ramp_after_loss: bool = False) -> Queue:
        client = client or connect(redis_url)
        clients.append(client)
        tuning = Tuning(ramp_after_loss=ramp_after_loss)
        state = build(Settings(), postgres, client, inventory.client(), tuning)
        return Queue(state, postgres, redis, inventory)

    yield make
    for client in clients:
        await client.aclose()


@pytest.fixture
async def queue(new_queue: Callable[..., Queue]) -> AsyncIterator[Queue]:
    """With the features' parts of a queue."""
    queue = new_queue()
    async with Loops("queue", held=True) as loops, open_parts(queue.state, parts_of("queue"), loops):
        yield queue


def credentials(role: str) -> dict[str, str]:
    """The header of the operator with this role."""
    return {"Authorization": f"Bearer {_admin_key(role)}"}


def _admin_key(role: str) -> str:
    return f"the-{role}-secret-of-some-length"


@pytest.fixture
async def app(redis_url: str, postgres_url: str) -> AsyncIterator[FastAPI]:
    """The app with its background loops running."""
    keys = AdminKeys(",".join(f"{name}:{role}:{_admin_key(role)}" for role, name in OPERATORS.items()))
    settings = Settings(redis_url=redis_url, postgres_url=postgres_url, admin_keys=keys, log_requests=False)
    app = create_app(settings, Tuning(tick_s=0.05))
    async with app.router.lifespan_context(app):
        yield app


@pytest.fixture
async def admin(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the public app with the key of an admin."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(public(app)), base_url="http://queue") as client:
        client.headers.update(credentials("admin"))
        yield client


@pytest.fixture
async def queue_client(app: FastAPI) -> AsyncIterator[QueueClient]:
    """The client that other services use."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(internal(app))) as client:
        yield QueueClient(ServiceClient(client, "http://queue", development_keys("service"), name="queue"))


async def put_event(admin: httpx.AsyncClient, **room) -> httpx.Response:
    return await admin.put(EVENT_URL, json=event_file(**room).model_dump(mode="json"))


async def open_event(admin: httpx.AsyncClient, **room) -> None:
    await put_event(admin, **room)
    assert (await admin.post(f"{ROOM_URL}/open")).json()["state"] == "open"
