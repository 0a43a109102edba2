"""Direct calls of the Redis scripts on one small stock: a seated section A and a GA section."""

from typing import Any

from redis.asyncio import Redis

from services.inventory.redis_keys import Keys
from services.inventory.redis_stock.client import (
    Change,
    HoldDenied,
    HoldGranted,
    RedisStock,
    follow_calls,
    load_script,
)

EVENT = "e"
KEYS = Keys.of(EVENT)


async def open_stock(redis: Redis, *, a: str = "....|....", ga: int = 10) -> RedisStock:
    """A stock that is open for sale, with these marks of section A and so many GA tickets."""
    assert await begin_rebuild(redis, epoch=1) == b"done"
    nothing = {"held": 0, "sold": 0, "blocked": 0}
    sections: list[Change] = [
        {"id": "A", "map": a, "counts": {"available": a.count("."), **nothing}},
        {"id": "GA", "counts": {"available": ga, **nothing}},
    ]
    for call in follow_calls(places=sections, epoch=1, rebuild=True):
        assert await RedisStock(redis).call("follow", EVENT, **call) == b"done"
    assert await finish_rebuild(redis, epoch=1, parts=KEYS.parts(["A"])) == b"done"
    return RedisStock(redis)


async def begin_rebuild(redis: Redis, *, epoch: int) -> Any:
    emptied = [KEYS.map + "A"]
    return await RedisStock(redis).call("rebuild_begin", EVENT, emptied=emptied, epoch=epoch, clock_offset_ms=0)


async def finish_rebuild(redis: Redis, *, epoch: int, parts: list[str]) -> Any:
    return await load_script("finish_rebuild")(
        redis, meta=KEYS.meta, parts=parts, epoch=epoch, redis_instance_id="x", stock_version=1
    )


def live(reservation_id: str, version: int, *, until_ms: int, paying: bool = False, has: str = "A:0") -> Change:
    """A hold, or one that is being paid, without a grace."""
    now = "p" if paying else "h"
    return {"id": reservation_id, "v": version, "now": now, "until": until_ms, "release_at": until_ms, "has": has}


def bought(reservation_id: str, version: int = 3, **more: Any) -> Change:
    return {"id": reservation_id, "v": version, "now": "s", **more}


def hold_arguments(selection: str, *, reservation_id: str = "r1", holder: str = "fan", **more: Any) -> dict[str, Any]:
    return {
        "reservation_id": reservation_id, "holder": holder, "jti": "j", "stock_hash": selection, "body_hash": "",
        "selection": selection, "hold_ttl_ms": 60_000, "tickets_max": 0, "live_max": 5, **more,
    }  # fmt: skip


async def grant(redis_stock: RedisStock, selection: str, **more: Any) -> HoldGranted:
    """The hold that Redis must grant."""
    (reply,) = await redis_stock.hold(EVENT, [hold_arguments(selection, **more)])
    assert isinstance(reply, HoldGranted), reply
    return reply


async def denial(redis_stock: RedisStock, selection: str, **more: Any) -> tuple[str, str]:
    """The outcome and the detail of a hold that Redis must deny."""
    (reply,) = await redis_stock.hold(EVENT, [hold_arguments(selection, **more)])
    assert isinstance(reply, HoldDenied), reply
    return reply.outcome, reply.detail
