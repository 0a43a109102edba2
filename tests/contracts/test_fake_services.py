"""The fake services of the notifier's tests answer every request as the real queue and inventory do."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis
from sqlalchemy.ext.asyncio import AsyncEngine

from shared.web.app import internal
from tests.contracts.internal_calls import Answer, call_internal, client_of
from tests.contracts.real_queue import RealQueue
from tests.inventory.conftest import EVENT, event_file, settings_of, start
from tests.notifier.fake_services import FakeServices
from tests.notifier.frames import EVENT as FAKE_EVENT

QUEUE_PATHS = ("/rooms/frame", "/places", "/heartbeats")
REQUESTS: dict[str, dict[str, Any]] = {
    "/rooms/frame": {}, "/places": {"holders": ["user.ada", "user.nobody"]}, "/stock": {},
    "/seats": {},
    "/heartbeats": {"reporter": "a notifier", "events": []},
}  # fmt: skip


@pytest.fixture
async def real(
    redis: Redis, redis_url: str, postgres_url: str, postgres: AsyncEngine
) -> AsyncIterator[dict[str, httpx.AsyncClient]]:
    """The client of the real service that serves each path."""
    async for inventory in start(settings_of(redis_url, postgres_url)):
        assert (await inventory.put(event_file())).status_code == 200
        queue = RealQueue(postgres, redis, inventory.internal)
        await queue.open()
        await inventory.until_ready()
        joins = [{"holder": "user.ada", "user_id": "ada"}]
        await call_internal(queue.client, "/joins", event_id=EVENT, batch_id="a-batch-1", joins=joins)
        yield {path: queue.client if path in QUEUE_PATHS else inventory.internal for path in REQUESTS}


async def test_every_request_gets_the_same_answer(real: dict[str, httpx.AsyncClient]) -> None:
    services = FakeServices(places={"user.ada": 1})
    fake = client_of(internal(services.app()))

    async def answers_of(client: httpx.AsyncClient, path: str, event_id: str) -> list[Answer]:
        status, body = await call_internal(client, path, event_id=event_id, **REQUESTS[path])
        unknown = await call_internal(client, path, **{**REQUESTS[path], "event_id": "nowhere"})
        return [(status, shape(body)), *([] if path == "/heartbeats" else [unknown])]

    for path in REQUESTS:
        assert await answers_of(fake, path, FAKE_EVENT) == await answers_of(real[path], path, EVENT), path


def shape(body: Any) -> Any:
    """The names of the body's fields and of a section's fields (or their types), and the places."""
    [first, *_] = body.get("sections") or [()]
    sections = sorted(first) if isinstance(first, dict) else [type(value) for value in first]
    return sorted(body), body.get("places"), sections
