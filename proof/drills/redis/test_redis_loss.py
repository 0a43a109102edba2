"""Valkey is flushed, killed, rolled back or frozen during a sale: places, their order and passes stay, no fan is called
twice, and calls resume by themselves.
"""

import asyncio
import signal
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import redis.asyncio

from onsale.client import Fan
from proof.drills.fleet import Fleet
from proof.drills.sale import FLOOR, ONE_TICKET, Recorder, on_sale, until_count
from tests.support.wait import wait_until

FANS, INSIDE = 40, 3
FROZEN_S = 7.0
ROOM = {"rate_per_s": 4, "burst": 3, "max_active": 100, "claim_window_s": 120}
CALLS = "SELECT count(*) FROM queue.admission WHERE event_id = $1"
CALLED_TWICE = "SELECT join_seq FROM queue.admission WHERE event_id = $1 GROUP BY join_seq HAVING count(*) > 1"
ROOM_PROMISE, SALE_PROMISE = "30 s / 0", "15 s / 0"
Failure = Callable[[Fleet, Path], Coroutine[Any, Any, None]]


async def flushed(fleet: Fleet, folder: Path) -> None:
    async with redis.asyncio.Redis.from_url(fleet.valkey.url) as client:
        await client.flushall()


async def killed(fleet: Fleet, folder: Path) -> None:
    fleet.valkey.end(signal.SIGKILL)
    fleet.valkey.start()
    await asyncio.to_thread(fleet.valkey.wait)


async def back_in_time(fleet: Fleet, folder: Path) -> None:
    """Valkey restarts with an older copy of its data."""
    fleet.valkey.end(signal.SIGKILL)
    fleet.valkey.put_back(folder / "older")
    fleet.valkey.start()
    await asyncio.to_thread(fleet.valkey.wait)


async def frozen(fleet: Fleet, folder: Path) -> None:
    """Connections stay open without an answer; joins meanwhile get their numbers from PostgreSQL."""
    fleet.valkey.send(signal.SIGSTOP)
    back_s = time.monotonic() + FROZEN_S
    try:
        await wait_until(lambda: time.monotonic() > back_s, timeout_s=2 * FROZEN_S)
    finally:
        fleet.valkey.send(signal.SIGCONT)


@pytest.mark.parametrize("failure", [flushed, killed, back_in_time, frozen], ids=lambda failure: failure.__name__)
async def test_line_and_sale_survive_a_loss_of_valkey(
    fleet: Fleet, database: asyncpg.Connection, tmp_path: Path, failure: Failure, recovery: Recorder
) -> None:
    async with on_sale(fleet, room=ROOM, sections=FLOOR) as sale:
        fans, late = [sale.fan() for _ in range(FANS)], [sale.fan() for _ in range(5)]
        await asyncio.gather(*(fan.join() for fan in fans[: FANS // 2]))
        fleet.valkey.copy_to(tmp_path / "older")
        await asyncio.gather(*(fan.join() for fan in fans[FANS // 2 :]))
        fans.sort(key=lambda fan: fan.join_seq)
        inside = fans[:INSIDE]
        for fan in inside:
            await fan.wait()
            await fan.claim()
        await inside[0].hold({"ga": [{"section_id": "GA1", "quantity": 2}]})
        passes = [fan.admission for fan in inside]

        lost_s = time.monotonic()
        failing = asyncio.create_task(failure(fleet, tmp_path))
        await asyncio.gather(*(fan.join() for fan in late))
        joined_s = time.monotonic()
        await failing
        calls_before = await database.fetchval(CALLS, sale.event_id)
        selling = asyncio.create_task(_time_of_purchase(inside[1]))
        await until_count(database, calls_before + 1, CALLS, sale.event_id)
        called_s, sold_s = time.monotonic(), await selling

        assert min(fan.join_seq for fan in late) > fans[-1].join_seq, "later fans are behind earlier ones"
        # the fan between these two has bought, so that session is over
        for fan, before in list(zip(inside, passes, strict=True))[::2]:
            assert (await fan.claim())["pass"] == before, "the same pass"
        in_line = sorted((*fans, *late), key=lambda fan: fan.join_seq)
        # calls continue meanwhile, and a position can only get better
        positions = [await _position(fan) for fan in reversed(in_line)]
        assert positions == sorted(positions, reverse=True), "the order is unchanged"
        assert await database.fetch(CALLED_TWICE, sale.event_id) == []
    what = f"Valkey {failure.__name__.replace('_', ' ')}"
    recovery(f"{what}: joins", joined_s - lost_s, promise=ROOM_PROMISE)
    recovery(f"{what}: calls", called_s - lost_s, promise=ROOM_PROMISE)
    recovery(f"{what}: a sale", sold_s - lost_s, promise=SALE_PROMISE)


async def _position(fan: Fan) -> int:
    place = await fan.status()
    assert place["join_seq"] == fan.join_seq, "a place keeps its number"
    assert place["position_in_queue"] is not None
    return place["position_in_queue"]


async def _time_of_purchase(fan: Fan) -> float:
    """The time at which this admitted fan had bought a ticket."""
    assert (await fan.buy(await fan.hold(ONE_TICKET)))["status"] == "confirmed"
    return time.monotonic()
