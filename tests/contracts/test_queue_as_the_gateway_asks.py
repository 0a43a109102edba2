"""The queue, and what stands in for it in the tests of the gateway, answer the same questions alike."""

from collections.abc import AsyncIterator
from typing import Any, Literal

import httpx
import pytest
from redis.asyncio import Redis
from sqlalchemy.ext.asyncio import AsyncEngine

from services.queue.app import build, create_app
from services.queue.settings import Settings
from shared.contracts.event_file import EventFile
from shared.contracts.inventory import InventoryClient
from shared.rpc.client import ServiceClient
from shared.web.app import internal
from tests.contracts.internal_calls import Answer, call_internal, client_of
from tests.gateway.fake_queue import FakeQueue
from tests.inventory.conftest import EVENT, event_file, settings_of, start


class Real:
    """The queue and inventory on their engines, turned by hand."""

    def __init__(self, settings: Settings, db: AsyncEngine, redis: Redis, inventory: httpx.AsyncClient) -> None:
        neighbour = ServiceClient(inventory, "http://neighbour", settings.service_keys, name="inventory")
        self.queue = build(settings, db, redis, InventoryClient(neighbour))
        app = create_app(settings)
        app.state.deps = self.queue
        self.client = client_of(internal(app))

    async def open(self, *, signed_in_only: bool = False) -> None:
        room = {"rate_per_s": 0.05, "burst": 10, "max_active": 1, "entry": {"signed_in_only": signed_in_only}}
        await self.queue.rooms.apply(EventFile.model_validate(event_file() | {"room": room}), actor="test")
        await self.move("open")

    async def move(self, action: Literal["open", "close"]) -> None:
        moved = await self.queue.rooms.transition(EVENT, action, actor="test", reason=None)
        await self.queue.gatekeeper.apply_config(moved)

    async def call(self) -> None:
        """One fan, who would have been called 20 s later: before that nobody is, however busy the machine."""
        self.queue.line.clock_offset_ms += 20_000
        await self.queue.gatekeeper.tick(EVENT)

    async def close(self) -> None:
        await self.move("close")


class Fake:
    """What stands in for it."""

    def __init__(self) -> None:
        self.queue = FakeQueue()
        self.client = client_of(self.queue)

    async def open(self, *, signed_in_only: bool = False) -> None:
        self.room = self.queue.open(EVENT, signed_in_only=signed_in_only)

    async def call(self) -> None:
        self.room.head_seq = 1

    async def close(self) -> None:
        self.room.state = "closed"


@pytest.fixture
async def both(
    redis: Redis, redis_url: str, postgres_url: str, postgres: AsyncEngine
) -> AsyncIterator[tuple[Real, Fake]]:
    async for inventory in start(settings_of(redis_url, postgres_url)):
        assert (await inventory.put(event_file())).status_code == 200
        yield Real(Settings(ramp_after_loss=False), postgres, redis, inventory.neighbours), Fake()


async def asked(side: Any, path: str, *, epoch: int | None = 1, event_id: str = EVENT, **question: Any) -> Answer:
    return await call_internal(
        side.client, path, event_id=event_id, **({} if epoch is None else {"epoch": epoch}), **question
    )


async def join(side: Any, *holders: str, batch_id: str = "a-batch-1", **more: Any) -> Answer:
    joins = [{"holder": holder, **more} for holder in holders]
    status, body = await asked(side, "/joins", epoch=None, batch_id=batch_id, joins=joins)
    frame = body.pop("frame")
    return status, body | {"frame": {name: frame[name] for name in ("event_id", "epoch", "ready", "state")}}


def places(*holders: str) -> list[dict[str, Any]]:
    return [{"lane": 0, "join_seq": int(holder[-1]), "holder": holder} for holder in holders]


async def test_a_place_is_answered_alike_from_its_join_to_its_end(both: tuple[Real, Fake]) -> None:
    first, second, two = places("fan-1"), places("fan-2"), places("fan-1", "fan-2")
    steps = [("/status", two), ("/claims", two), ("/claims", two), ("/status", two), ("/leaves", second),
             ("/leaves", second), ("/releases", first), ("/releases", first), ("/status", two),
             ("/claims", two)]  # fmt: skip

    async def answers(side: Any) -> list[Any]:
        await side.open()
        told: list[Any] = [await join(side, "fan-1", "fan-2", "fan-3")]
        await side.call()
        told.append(await join(side, "fan-2", batch_id="a-batch-2", may_be_known=True))
        told += [(path, await asked(side, path, places=of)) for path, of in steps]
        revoked = await asked(side, "/rooms/revoked", epoch=None)
        assert [len(each) for each in revoked[1]["passes"]] == [2]
        told.append([jti for jti, _ in revoked[1]["passes"]])
        told.append(await join(side, "fan-2", batch_id="a-batch-3", may_be_known=True))
        return told

    real, fake = [await answers(side) for side in both]
    assert fake == real


async def test_refusals_are_answered_alike(both: tuple[Real, Fake]) -> None:
    async def answers(side: Any) -> list[Any]:
        await side.open()
        told: list[Any] = [await join(side, "fan-1")]
        for path in ("/status", "/claims", "/leaves", "/releases"):
            for where in ({"epoch": 7}, {"event_id": "nowhere"}):
                told.append(await asked(side, path, places=places("fan-1"), **where))  # noqa: PERF401 - one by one
        paths = ("/rooms/frame", "/rooms/revoked", "/lottery")
        told += [await asked(side, path, epoch=None, event_id="nowhere") for path in paths]
        told.append(await asked(side, "/places", epoch=None, holders=["fan-1"], event_id="nowhere"))
        told.append(await asked(side, "/lottery", epoch=None))
        await side.close()
        return [*told, await join(side, "fan-2", batch_id="a-batch-2")]

    real, fake = [await answers(side) for side in both]
    assert fake == real


async def test_a_room_for_those_signed_in_answers_alike(both: tuple[Real, Fake]) -> None:
    async def answers(side: Any) -> list[Any]:
        await side.open(signed_in_only=True)
        return [
            await join(side, "fan-1"),
            await join(side, "user.ada", batch_id="a-batch-2", user_id="ada", may_be_known=True),
            await asked(side, "/places", epoch=None, holders=["user.ada", "user.nobody"]),
        ]

    real, fake = [await answers(side) for side in both]
    assert fake == real


async def test_the_frame_and_the_report_have_the_same_parts(both: tuple[Real, Fake]) -> None:
    async def answers(side: Any) -> list[Any]:
        await side.open()
        frame = (await asked(side, "/rooms/frame", epoch=None))[1]
        report = await call_internal(side.client, "/heartbeats", reporter="a gateway", events=[])
        return [sorted(frame), sorted(frame["options"]), report[0], sorted(report[1])]

    real, fake = [await answers(side) for side in both]
    assert fake == real
