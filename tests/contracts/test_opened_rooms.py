"""A room that a test opens in one transaction is as the queue leaves one that an operator has opened."""

from typing import Any

import pytest
from redis.asyncio import Redis

from services.queue import redis_keys
from shared.contracts.event_file import EventFile
from tests.queue.conftest import Inventory
from tests.support.engines.database import Database
from tests.support.running.queue_service import ROOM, TEST, QueueService, queue_service

OF_ONE_ROOM = {"event_id", "fence", "redis_instance_id"}
OF_A_MOMENT = {"version", "at_ms", "last_ms", "bucket_ms", "assume_live_until_ms", "others_ms", "change_n", "tokens",
               "window:0", "window:1"}  # fmt: skip
LANES = [{"lane": 0, "name": "General"}, {"lane": 1, "name": "Presale", "weight": 3, "code_required": True}]


@pytest.mark.parametrize("room", [{}, {"lanes": LANES, "max_line": 7, "gate": {"let_through": ["/up"]}}])
async def test_an_opened_room_is_as_an_operator_leaves_it(
    database: Database, redis: Redis, room: dict[str, Any]
) -> None:
    file = EventFile.model_validate({
        "event_id": "by-operator", "name": "A show", "venue": "A hall", "currency": "EUR",
        "starts_at": "2030-03-05T19:30:00Z", "room": ROOM | room,
        "sections": [{"section_id": "GA", "name": "Floor", "kind": "ga", "capacity": 10, "price_minor": 100}],
    })  # fmt: skip
    async with queue_service(database, redis, Inventory().client()) as queue:
        await queue.open("by-test", **room)
        await queue.state.rooms.apply(file, TEST)
        await queue.transition("open", "by-operator")
        by_test, by_operator = [await everything(queue, redis, name) for name in ("by-test", "by-operator")]
    assert by_test == by_operator


async def everything(queue: QueueService, redis: Redis, event_id: str) -> list[dict[str, Any]]:
    """The room in the database and in Redis, and its frame."""
    room = await queue.state.rooms.read(event_id)
    frame = await queue.state.gatekeeper.frame(event_id)
    in_redis = {name.decode(): value for name, value in (await redis.hgetall(redis_keys.room(event_id))).items()}
    frame_fields = without(dict(frame), OF_ONE_ROOM | OF_A_MOMENT)
    return [without(vars(room), OF_ONE_ROOM), without(in_redis, OF_A_MOMENT), frame_fields]


def without(fields: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}
