"""The fake queue of the gateway's tests answers every request as the real queue does."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis
from sqlalchemy.ext.asyncio import AsyncEngine

from tests.contracts.internal_calls import Answer, assert_same_answers, call_internal, client_of
from tests.contracts.real_queue import RealQueue
from tests.gateway.fake_queue import FakeQueue
from tests.inventory.conftest import EVENT, event_file, settings_of, start


class Fake:
    """The fake queue with the methods of `RealQueue`."""

    def __init__(self) -> None:
        self.queue = FakeQueue()
        self.client = client_of(self.queue)

    async def open(self, *, signed_in_only: bool = False) -> None:
        self.room = self.queue.open(EVENT, signed_in_only=signed_in_only)

    async def close(self) -> None:
        self.room.state = "closed"

    async def call(self) -> None:
        self.room.head_seq = 1


@pytest.fixture
async def both(
    redis: Redis, redis_url: str, postgres_url: str, postgres: AsyncEngine
) -> AsyncIterator[tuple[RealQueue, Fake]]:
    async for inventory in start(settings_of(redis_url, postgres_url)):
        assert (await inventory.put(event_file())).status_code == 200
        yield RealQueue(postgres, redis, inventory.internal), Fake()


async def call(side: Any, path: str, *, epoch: int | None = 1, event_id: str = EVENT, **request: Any) -> Answer:
    of_epoch = {} if epoch is None else {"epoch": epoch}
    return await call_internal(side.client, path, event_id=event_id, **of_epoch, **request)


async def join(side: Any, *holders: str, batch_id: str = "a-batch-1", **more: Any) -> Answer:
    joins = [{"holder": holder, **more} for holder in holders]
    status, body = await call(side, "/joins", epoch=None, batch_id=batch_id, joins=joins)
    frame = body.pop("frame")
    return status, body | {"frame": {name: frame[name] for name in ("event_id", "epoch", "ready", "state")}}


def places(*holders: str) -> list[dict[str, Any]]:
    return [{"lane": 0, "join_seq": int(holder[-1]), "holder": holder} for holder in holders]


async def test_a_place_gets_the_same_answers_from_its_join_to_its_end(both: tuple[RealQueue, Fake]) -> None:
    first, second, two = places("fan-1"), places("fan-2"), places("fan-1", "fan-2")
    steps = [("/status", two), ("/claims", two), ("/claims", two), ("/status", two), ("/leaves", second),
             ("/leaves", second), ("/releases", first), ("/releases", first), ("/status", two),
             ("/claims", two)]  # fmt: skip

    async def answers_of(side: Any) -> list[Any]:
        await side.open()
        answers: list[Any] = [await join(side, "fan-1", "fan-2", "fan-3")]
        await side.call()
        answers.append(await join(side, "fan-2", batch_id="a-batch-2", may_be_known=True))
        answers += [(path, await call(side, path, places=of)) for path, of in steps]
        revoked = await call(side, "/rooms/revoked", epoch=None)
        assert [len(each) for each in revoked[1]["passes"]] == [2]
        answers.append([jti for jti, _ in revoked[1]["passes"]])
        answers.append(await join(side, "fan-2", batch_id="a-batch-3", may_be_known=True))
        return answers

    await assert_same_answers(both, answers_of)


async def test_refused_requests_get_the_same_answers(both: tuple[RealQueue, Fake]) -> None:
    async def answers_of(side: Any) -> list[Any]:
        await side.open()
        answers: list[Any] = [await join(side, "fan-1")]
        for path in ("/status", "/claims", "/leaves", "/releases"):
            for wrong in ({"epoch": 7}, {"event_id": "nowhere"}):
                answers.append(await call(side, path, places=places("fan-1"), **wrong))  # noqa: PERF401 - one by one
        paths = ("/rooms/frame", "/rooms/revoked", "/lottery")
        answers += [await call(side, path, epoch=None, event_id="nowhere") for path in paths]
        answers.append(await call(side, "/places", epoch=None, holders=["fan-1"], event_id="nowhere"))
        answers.append(await call(side, "/lottery", epoch=None))
        await side.close()
        return [*answers, await join(side, "fan-2", batch_id="a-batch-2")]

    await assert_same_answers(both, answers_of)


async def test_a_room_for_signed_in_fans_gives_the_same_answers(both: tuple[RealQueue, Fake]) -> None:
    async def answers_of(side: Any) -> list[Any]:
        await side.open(signed_in_only=True)
        return [
            await join(side, "fan-1"),
            await join(side, "user.ada", batch_id="a-batch-2", user_id="ada", may_be_known=True),
            await call(side, "/places", epoch=None, holders=["user.ada", "user.nobody"]),
        ]

    await assert_same_answers(both, answers_of)


async def test_frames_and_heartbeat_answers_have_the_same_fields(both: tuple[RealQueue, Fake]) -> None:
    async def answers_of(side: Any) -> list[Any]:
        await side.open()
        frame = (await call(side, "/rooms/frame", epoch=None))[1]
        report = await call_internal(side.client, "/heartbeats", reporter="a gateway", events=[])
        return [sorted(frame), sorted(frame["options"]), report[0], sorted(report[1])]

    await assert_same_answers(both, answers_of)
