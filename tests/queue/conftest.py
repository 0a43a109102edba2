"""A queue on real PostgreSQL and Redis, with an inventory that answers what a test tells it to."""

import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import httpx
import pytest
from redis.asyncio import Redis
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.queue.app import build
from services.queue.line import redis_line
from services.queue.settings import Settings
from services.queue.state import State
from shared.contracts.event_file import EventFile
from shared.contracts.frames import StockFrame
from shared.contracts.inventory import EndSessions, InventoryClient, MinPassEpoch, SessionEnd, SessionsAnswer
from shared.contracts.queue import JoinBatch, Joined, JoinRequest, PlaceRef, PlacesQuestion, PlaceState
from shared.redis.client import connect
from shared.redis.scripts import Script
from shared.rpc.client import ServiceClient
from shared.runtime.clock import now_ms
from shared.runtime.settings import development_keys

EVENT = "show"
batch_ids = itertools.count(1)


def event_file(**room) -> EventFile:
    return EventFile.model_validate({
        "event_id": EVENT, "name": "A show", "venue": "A hall", "currency": "EUR",
        "starts_at": "2027-03-05T19:30:00Z", "room": {"rate_per_s": 1000, "burst": 1000, **room},
        "sections": [{"section_id": "GA", "name": "Floor", "kind": "ga", "capacity": 10, "price_minor": 100}],
    })  # fmt: skip


@dataclass
class Inventory:
    """A fake inventory that records its requests. `stands`: holders with a live reservation, and until when (ms)."""

    stands: dict[str, int] = field(default_factory=dict)
    ended: list[EndSessions] = field(default_factory=list)
    away: bool = False
    stock: StockFrame | None = None
    asked_for_stock: int = 0
    floors: list[int] = field(default_factory=list)

    def client(self) -> InventoryClient:
        pool = httpx.AsyncClient(transport=httpx.MockTransport(self._answer))
        return InventoryClient(ServiceClient(pool, "http://inventory", development_keys("service"), name="inventory"))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if self.away:
            raise httpx.ConnectError("away")
        if request.url.path.endswith("/stock"):
            assert self.stock is not None
            self.asked_for_stock += 1
            return httpx.Response(200, json=self.stock.model_dump())
        if request.url.path.endswith("/min-epoch"):
            self.floors.append(MinPassEpoch.model_validate_json(request.content).epoch)
            return httpx.Response(200, content=request.content)
        question = EndSessions.model_validate_json(request.content)
        self.ended.append(question)
        ends = [
            SessionEnd(outcome="until", until_ms=self.stands[s.holder])
            if s.holder in self.stands
            else SessionEnd(outcome="gone")
            for s in question.sessions
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

    async def open(self, **room) -> None:
        """An open room whose bucket is full: nobody has to wait for tokens."""
        await self.state.rooms.apply(event_file(**room), actor="test")
        opened = await self.state.rooms.transition(EVENT, "open", actor="test", reason=None)
        await self.state.gatekeeper.apply_config(opened)

    async def configure(self, **wanted) -> None:
        """Changes the room as an operator does."""
        room = await self.state.rooms.change(EVENT, wanted, actor="test", action="change", reason=None)
        await self.state.gatekeeper.apply_config(room)

    def later(self, seconds: float) -> None:
        """Moves Redis' clock to so much later than it was last moved to; how long a test takes does not count,
        unless it takes longer: only a step below 0 sets the clock back.
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
        batch = JoinBatch(event_id=EVENT, batch_id=batch_id or f"batch-{next(batch_ids):06}", joins=joins)
        return (await self.state.joins.join(batch)).joined

    async def crowd(self, count: int, *, name: str = "fan", lane: int = 0) -> list[Joined]:
        return await self.join(*(f"{name}-{i}" for i in range(1, count + 1)), lane=lane)

    async def tick(self, after_s: float = 0.5):
        """One tick of the gatekeeper, later."""
        self.later(after_s)
        return await self.state.gatekeeper.tick(EVENT)

    def places(self, *refs: tuple[int, str], lane: int = 0, epoch: int | None = None) -> PlacesQuestion:
        places = [PlaceRef(lane=lane, join_seq=seq, holder=holder) for seq, holder in refs]
        return PlacesQuestion(event_id=EVENT, epoch=epoch or self.epoch, places=places)

    async def status(self, *refs: tuple[int, str]) -> list[PlaceState]:
        return [place.status for place in await self.state.claims.status(self.places(*refs))]

    async def claim(self, *refs: tuple[int, str]):
        return await self.state.claims.claim(self.places(*refs))

    async def leave(self, *refs: tuple[int, str]) -> list[PlaceState]:
        return await self.state.claims.leave(self.places(*refs))

    async def sql(self, statement: str, **values):
        async with self.db.begin() as connection:
            result = await connection.execute(text(statement), values)
            return result.fetchall() if result.returns_rows else []

    async def called(self) -> list[int]:
        return sorted(int(place.split(":")[1]) for place in await self.part("called"))

    async def part(self, name: str) -> dict[str, float]:
        """A sorted set of the line's state, without its mark."""
        key = f"queue:{{{EVENT}}}:{self.epoch}:{name}"
        rows = await self.redis.zrangebyscore(key, "-inf", "(inf", withscores=True)
        return {member.decode(): score for member, score in rows}

    async def heartbeat(self, *join_seqs: int, lane: int = 0) -> None:
        await self.state.line.touch(EVENT, self.epoch, lane, join_seqs)

    async def liveness_assumed_over(self) -> None:
        """Lets the time pass in which all places are taken as live."""
        await self.tick(3 * 30 + 1)

    async def room_hash(self) -> dict[str, str]:
        fields = await self.redis.hgetall(f"queue:{{{EVENT}}}:room")
        return {name.decode(): value.decode() for name, value in fields.items()}

    async def sessions_ended(self) -> None:
        await self.state.sessions.drain()


@pytest.fixture
def inventory() -> Inventory:
    return Inventory()


@pytest.fixture
async def another(
    redis: Redis, redis_url: str, postgres: AsyncEngine, inventory: Inventory
) -> AsyncIterator[Callable[[], Queue]]:
    """Makes queue processes on the same PostgreSQL and Redis."""
    clients: list[Redis] = []

    def make() -> Queue:
        client = connect(redis_url)
        clients.append(client)
        state = build(Settings(ramp_after_loss=False), postgres, client, inventory.client())
        return Queue(state, postgres, redis, inventory)

    yield make
    for client in clients:
        await client.aclose()


@pytest.fixture
def queue(another: Callable[[], Queue]) -> Queue:
    return another()


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Removes a guard from a script: the test must fail without it."""

    def take_out(verb: str, guard: str, instead: str = "") -> None:
        script: Script = getattr(redis_line, verb.upper())
        assert guard in script.source, f"{verb} has no such guard"
        monkeypatch.setattr(redis_line, verb.upper(), Script(script.name, script.source.replace(guard, instead)))

    return take_out
