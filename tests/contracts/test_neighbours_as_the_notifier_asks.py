"""Queue and inventory, and what stands in for both in the tests of the notifier, answer the same questions alike."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis
from sqlalchemy.ext.asyncio import AsyncEngine

from services.queue.settings import Settings
from shared.web.app import internal
from tests.contracts.internal_calls import Answer, call_internal, client_of
from tests.contracts.test_queue_as_the_gateway_asks import Real
from tests.inventory.conftest import EVENT, event_file, settings_of, start
from tests.notifier.conftest import EVENT as ARENA
from tests.notifier.conftest import FakeServices

QUEUES = ("/rooms/frame", "/places", "/heartbeats")
ASKED: dict[str, dict[str, Any]] = {
    "/rooms/frame": {}, "/places": {"holders": ["user.ada", "user.nobody"]}, "/stock": {},
    "/heartbeats": {"reporter": "a notifier", "events": []},
}  # fmt: skip


@pytest.fixture
async def real(
    redis: Redis, redis_url: str, postgres_url: str, postgres: AsyncEngine
) -> AsyncIterator[dict[str, httpx.AsyncClient]]:
    """Whom each path asks."""
    async for inventory in start(settings_of(redis_url, postgres_url)):
        assert (await inventory.put(event_file())).status_code == 200
        queue = Real(Settings(ramp_after_loss=False), postgres, redis, inventory.neighbours)
        await queue.open()
        await inventory.ready()
        joins = [{"holder": "user.ada", "user_id": "ada"}]
        await call_internal(queue.client, "/joins", event_id=EVENT, batch_id="a-batch-1", joins=joins)
        yield {path: queue.client if path in QUEUES else inventory.neighbours for path in ASKED}


@pytest.mark.parametrize("path", ASKED)
async def test_every_question_is_answered_alike(path: str, real: dict[str, httpx.AsyncClient]) -> None:
    these = FakeServices(places={"user.ada": 1})
    fake = client_of(internal(these.app()))

    async def answers(client: httpx.AsyncClient, event_id: str) -> list[Answer]:
        here = await call_internal(client, path, event_id=event_id, **ASKED[path])
        return [(here[0], parts(here[1])), await call_internal(client, path, **{**ASKED[path], "event_id": "nowhere"})]

    told, wanted = await answers(fake, ARENA), await answers(real[path], EVENT)
    assert told[0] == wanted[0]
    if path != "/heartbeats":
        assert told[1] == wanted[1]


def parts(body: Any) -> Any:
    """The shape of an answer: which fields it has, and what the places are."""
    sections = {"sections": sorted(body["sections"][0])} if "sections" in body else {}
    return sorted(body), body.get("places"), sections
