"""The real queue service as a neighbour in tests: its own app, PostgreSQL and Redis, with its loops off."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from fastapi import FastAPI
from redis.asyncio import Redis
from sqlalchemy import Row, insert, text

from services.queue import tables
from services.queue.admission.gatekeeper import admit_now
from services.queue.app import build, create_app
from services.queue.rooms.model import RequestedBy, ordering_of
from services.queue.rooms.store import Action, add_lanes
from services.queue.settings import Settings
from services.queue.tuning import Tuning
from shared.concurrency.background import Loops
from shared.contracts.event_file import RoomPart
from shared.contracts.frames import LineFrame
from shared.contracts.inventory import InventoryClient
from shared.contracts.queue import Claimed, JoinBatch, JoinRequest, PlaceRef, PlacesQuestion
from shared.contracts.room_options import RoomOptions
from shared.runtime.clock import now_ms
from shared.web.app import internal
from shared.web.parts import open_parts, parts_of
from tests.support.engines.database import Database
from tests.support.neighbours import FaultyNeighbour
from tests.support.running.apps import borrowed_app

TUNING = Tuning(ramp_after_loss=False)
TEST = RequestedBy("test")
SPARED = frozenset({"/heartbeats"})
ROOM = {"rate_per_s": 0.05, "burst": 10, "stock_coupling": False}  # nobody is called within 20 s unless the test does
PLACES = text(
    "SELECT join_seq, holder, end_reason FROM queue.place WHERE event_id = :event_id ORDER BY epoch, lane, join_seq"
)


class QueueService(FaultyNeighbour):
    """A test opens rooms and runs each tick. What it changes is published as always: each method that changes a line
    returns the frame that tells of it.
    """

    def __init__(self, app: FastAPI, database: Database, redis: Redis, inventory: InventoryClient) -> None:
        super().__init__(internal(app), spared=SPARED)
        self.state = app.state.deps = build(app.state.settings, database.db, redis, inventory, TUNING)
        self.database = database
        self.opened = False

    async def open(self, event_id: str = "show", *, epoch: int = 1, **settings: Any) -> LineFrame:
        """An open room, with these fields of its event file, written as the queue leaves one that an operator has
        opened: that takes three times as long. Nobody has heard of it, so its frame has to be asked for.
        """
        self.opened = True
        part = RoomPart.model_validate(ROOM | settings)
        row = part.model_dump(exclude=set(RoomOptions.model_fields)) | {
            "options": part.model_dump(mode="json", include=set(RoomOptions.model_fields)), "tickets_per_order": 6,
            "event_id": event_id, "epoch": epoch, "state": "open", "version": 2, "generation": 1,
            "redis_instance_id": "",
        }  # fmt: skip
        async with self.database.db.begin() as connection:
            await connection.execute(insert(tables.room).values(row))
            await add_lanes(connection, event_id, epoch, [one.lane for one in part.lanes])
            await ordering_of(part.ordering).begin(connection, event_id, epoch)
        room = await self.state.rooms.read(event_id)
        await self.state.recovery._write_redis(room, ramp=False)
        with self.frames_are_lost():
            return await self.tick(event_id)

    async def transition(self, action: Action, event_id: str = "show") -> LineFrame:
        await self.state.gatekeeper.apply_config(await self.state.rooms.transition(event_id, action, TEST))
        return await self.state.gatekeeper.frame(event_id)

    async def configure(self, event_id: str = "show", **settings: Any) -> LineFrame:
        """Changes the room as an operator does."""
        part = RoomPart.model_validate(settings)
        wanted = {name: getattr(part, name) for name in settings}
        await self.state.gatekeeper.apply_config(await self.state.rooms.change(event_id, wanted, TEST))
        return await self.state.gatekeeper.frame(event_id)

    async def reset(self, event_id: str = "show") -> LineFrame:
        await self.state.gatekeeper.apply_config(await self.state.rooms.reset(event_id, TEST))
        return await self.state.gatekeeper.frame(event_id)

    async def tick(self, event_id: str = "show") -> LineFrame:
        return await self.state.gatekeeper.tick(event_id)

    @contextmanager
    def frames_are_lost(self) -> Iterator[None]:
        """Meanwhile Pub/Sub loses what the queue publishes of its lines."""

        async def lose(*_: object) -> int:
            return 0

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.state.gatekeeper.frames._publisher, "publish", lose)
            yield

    @property
    def time_ms(self) -> int:
        """The time by the queue's clock."""
        return now_ms() + self.state.line.clock_offset_ms

    def advance_clock(self, seconds: float) -> None:
        self.state.line.clock_offset_ms += round(seconds * 1000)

    async def join(self, *holders: str, event_id: str = "show") -> None:
        """These holders join, in one batch."""
        joins = [JoinRequest(holder=holder) for holder in holders]
        batch = JoinBatch(event_id=event_id, batch_id=f"of-the-test-{holders[0]}", joins=joins)
        words = {one.word for one in (await self.state.joins.join(batch)).joined}
        assert words == {"joined"}

    async def call(self, count: int = 1, event_id: str = "show") -> LineFrame:
        """Calls the next fans, beyond the rate."""
        room = await self.state.rooms.get(event_id)
        assert await admit_now(self.state.line, self.state.gatekeeper, room, count) == count
        return await self.state.gatekeeper.frame(event_id)

    async def admit(self, holder: str, event_id: str = "show") -> Claimed:
        """This holder joins, is the next to be called, and claims the pass."""
        await self.join(holder, event_id=event_id)
        frame = await self.call(event_id=event_id)
        place = await self._place(frame.lanes[0].head_seq, holder, event_id)
        [claimed] = await self.state.claims.claim(place)
        assert claimed.word == "admitted"
        return claimed

    async def release(self, join_seq: int, holder: str, event_id: str = "show") -> None:
        """The session of this place is over, as a site says."""
        assert await self.state.claims.release(await self._place(join_seq, holder, event_id)) == ["completed"]

    async def _place(self, join_seq: int, holder: str, event_id: str) -> PlacesQuestion:
        epoch = (await self.state.rooms.get(event_id)).epoch
        place = PlaceRef(lane=0, join_seq=join_seq, holder=holder)
        return PlacesQuestion(event_id=event_id, epoch=epoch, places=[place])

    async def end(self, join_seq: int, reason: Any, event_id: str = "show") -> None:
        """Ends a place that has no session."""
        room = await self.state.rooms.get(event_id)
        ended = await self.state.sessions.end_places(
            event_id, room.epoch, [(0, join_seq)], end_reason=reason, unclaimed=True
        )
        assert ended == {(0, join_seq): reason}

    async def holders(self, event_id: str = "show") -> list[str]:
        """Who has joined, in the order of the line."""
        return [row.holder for row in await self._places(event_id)]

    async def ended(self, event_id: str = "show") -> dict[int, str]:
        """The places that have ended, and why."""
        return {row.join_seq: row.end_reason for row in await self._places(event_id) if row.end_reason}

    async def _places(self, event_id: str) -> Sequence[Row[Any]]:
        async with self.database.db.connect() as connection:
            return (await connection.execute(PLACES, {"event_id": event_id})).all()


@asynccontextmanager
async def queue_service(database: Database, redis: Redis, inventory: InventoryClient) -> AsyncIterator[QueueService]:
    """The queue, without rooms. A test that opens none uses no database."""
    with borrowed_app(create_app, Settings(log_requests=False), TUNING) as app:
        queue = QueueService(app, database, redis, inventory)
        async with Loops("queue", held=True) as loops, open_parts(queue.state, parts_of("queue"), loops):
            yield queue
        queue.may_answer.set()
    if queue.opened:
        await database.empty()
