"""The engine is lost in every way there is, in the middle of an on-sale: places, order and passes stay, nobody is
called twice, and calling goes on by itself.
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

from tests.drills.crowd import PatientFan, insist
from tests.drills.fleet import Fleet
from tests.support.wait import wait_until

FANS, INSIDE = 40, 3
AWAY_S = 7.0
ROOM = {"rate_per_s": 4, "burst": 3, "max_active": 100, "claim_window_s": 120}
FLOOR = [{"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 200, "price_minor": 3000}]
ROOM_PROMISE, SALE_PROMISE = "30 s / 0", "15 s / 0"
Mishap = Callable[[Fleet, Path], Coroutine[Any, Any, None]]


async def flushed(fleet: Fleet, folder: Path) -> None:
    async with redis.asyncio.Redis.from_url(fleet.valkey.url) as client:
        await client.flushall()


async def killed(fleet: Fleet, folder: Path) -> None:
    fleet.valkey.end(signal.SIGKILL)
    fleet.valkey.start()
    await asyncio.to_thread(fleet.valkey.wait)


async def back_in_time(fleet: Fleet, folder: Path) -> None:
    """What was copied when the room had just opened is all that the engine finds when it starts again."""
    fleet.valkey.end(signal.SIGKILL)
    fleet.valkey.put_back(folder / "older")
    fleet.valkey.start()
    await asyncio.to_thread(fleet.valkey.wait)


async def frozen(fleet: Fleet, folder: Path) -> None:
    """Connections stand, nothing is answered; whoever joins meanwhile takes a number from the ledger."""
    fleet.valkey.send(signal.SIGSTOP)
    back_s = time.monotonic() + AWAY_S
    try:
        await wait_until(lambda: time.monotonic() > back_s, timeout_s=2 * AWAY_S)
    finally:
        fleet.valkey.send(signal.SIGCONT)


@pytest.mark.parametrize("mishap", [flushed, killed, back_in_time, frozen], ids=lambda mishap: mishap.__name__)
async def test_the_line_and_the_sale_survive_the_engine(
    fleet: Fleet, ledger: asyncpg.Connection, tmp_path: Path, mishap: Mishap, recovery: Callable[..., None]
) -> None:
    event_id = await fleet.open_event(room=ROOM, sections=FLOOR)
    async with fleet.browser() as browser:
        fans = [PatientFan(browser, event_id) for _ in range(FANS)]
        await asyncio.gather(*(insist(fan.join) for fan in fans[: FANS // 2]))
        fleet.valkey.copy_to(tmp_path / "older")
        await asyncio.gather(*(insist(fan.join) for fan in fans[FANS // 2 :]))
        fans.sort(key=lambda fan: fan.join_seq)
        inside = fans[:INSIDE]
        for fan in inside:
            await insist(fan.called)
            await insist(fan.claim)
        await insist(lambda: inside[0].hold(ga=[{"section_id": "GA1", "quantity": 2}]))
        passes = [fan.admission for fan in inside]

        lost_s = time.monotonic()
        happening = asyncio.create_task(mishap(fleet, tmp_path))
        late = [PatientFan(browser, event_id) for _ in range(5)]
        await asyncio.gather(*(insist(fan.join) for fan in late))
        joined_s = time.monotonic()
        await happening
        heads_on, sold = await calling_goes_on(fleet, event_id, inside[1], ledger)

        assert min(fan.join_seq for fan in late) > fans[-1].join_seq, "who comes later stands behind"
        for fan, before in list(zip(inside, passes, strict=True))[::2]:  # the one between them has bought and is done
            assert await insist(fan.claim) == before, "the same pass"
        in_line = sorted((*fans, *late), key=lambda fan: fan.join_seq)
        positions = [await insist(fan.position) for fan in reversed(in_line)]  # calling goes on, and nobody falls back
        assert positions == sorted(positions, reverse=True), "the order stays"
        await nobody_was_called_twice(ledger, event_id)
    await wait_until(lambda: fleet.is_clean(event_id), timeout_s=15, interval_s=0.3)
    what = f"Valkey {mishap.__name__.replace('_', ' ')}"
    recovery(f"{what}: joins", joined_s - lost_s, promise=ROOM_PROMISE)
    recovery(f"{what}: calls", heads_on - lost_s, promise=ROOM_PROMISE)
    recovery(f"{what}: a sale", sold - lost_s, promise=SALE_PROMISE)


async def calling_goes_on(
    fleet: Fleet, event_id: str, fan: PatientFan, ledger: asyncpg.Connection
) -> tuple[float, float]:
    """When somebody new was called, and when somebody inside had bought something."""
    calls = "SELECT count(*) FROM queue.admission WHERE event_id = $1"
    before = await ledger.fetchval(calls, event_id)

    async def sale() -> float:
        order = await fan.buys(ga=[{"section_id": "GA1", "quantity": 1}])
        assert order["status"] == "confirmed"
        return time.monotonic()

    selling = asyncio.create_task(sale())

    async def more() -> bool:
        return bool(await ledger.fetchval(calls, event_id) > before)

    await wait_until(more, timeout_s=30)
    return time.monotonic(), await selling


async def nobody_was_called_twice(ledger: asyncpg.Connection, event_id: str) -> None:
    twice = "SELECT join_seq FROM queue.admission WHERE event_id = $1 GROUP BY join_seq HAVING count(*) > 1"
    assert await ledger.fetch(twice, event_id) == []
