"""Two processes of every service behind nginx and HAProxy: the journey, a restart of everything under load that nobody
notices, and `kill -9` of one process of each service, which costs a moment of asking again.
"""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from pathlib import Path

import httpx
import pytest

from onsale.engines import Engines
from shared.routes import SERVICES
from tests.drills.crowd import PatientFan
from tests.drills.pair import Ear, Pair, SteadyFan, keep_coming, watched_browser
from tests.support.balancers import KINDS, Kind, parameters, program
from tests.support.engines import in_database, run_apart, sql
from tests.support.suite import bearer
from tests.support.wait import wait_until

pytestmark = [
    pytest.mark.drill,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not all(Path(program(kind)).exists() for kind in KINDS), reason="nginx or haproxy is not installed"
    ),
]
ROOM = {"rate_per_s": 50, "burst": 20, "max_active": 500}
FLOOR = [{"section_id": "GA", "name": "Floor", "kind": "ga", "capacity": 5000, "price_minor": 3000}]
TICKET = [{"section_id": "GA", "quantity": 1}]
AT_ONCE, EARS = 4, 4


@pytest.fixture(scope="module")
def pair(engines: Engines, migrated: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    run_apart(sql(engines, f"create database pair template {migrated}"))
    running = Pair(tmp_path_factory.mktemp("pair"), in_database(engines, "pair"))
    try:
        yield running.start()
    finally:
        running.end()


@pytest.mark.parametrize("kind", parameters())
async def test_a_balancer_carries_the_journey_over_two_processes_of_every_service(pair: Pair, kind: Kind) -> None:
    event_id = await pair.fleet.open_event(room=ROOM)
    browser, seen = watched_browser(pair.urls[kind])
    async with browser:
        before = await _served(pair)
        for seat in range(1, 9):
            fan = await SteadyFan(browser, event_id).come_in()
            async with browser.stream("GET", f"{fan.path}/sections/updates", headers=bearer(fan.token)) as stream:
                lines = stream.aiter_lines()
                await _stock(lines)
                reservation = await fan.hold(seats=[f"A-1-{seat}"])
                held_s = time.monotonic()
                await _stock(lines)
                assert time.monotonic() - held_s < 5, "frames are not kept back"
            order = await fan.buy(reservation)
            assert order["status"] == "confirmed"
        after = await _served(pair)
    assert not seen.lost
    assert {name for name in after if after[name] > before[name]} == set(after), "every process had its share"
    await wait_until(lambda: _clean(pair, event_id), timeout_s=15, interval_s=0.3)


async def _stock(lines: AsyncIterator[str]) -> None:
    """Returns when the stream says what is left."""
    async for line in lines:
        if line == "event: sections":
            return
    raise AssertionError("the stream has ended")


async def _served(pair: Pair) -> dict[str, float]:
    """Requests that each process answered, probes aside."""
    found = {}
    async with httpx.AsyncClient(trust_env=False) as client:
        for service in SERVICES:
            for name, port in zip(pair.fleet.copies(service), pair.fleet.ports[service], strict=True):
                text = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
                lines = [line for line in text.splitlines() if line.startswith("onsale_http_request_seconds_count")]
                found[name] = sum(
                    float(line.rpartition(" ")[2]) for line in lines if "readyz" not in line and "metrics" not in line
                )
    return found


@pytest.mark.parametrize("kind", parameters())
async def test_everything_is_restarted_under_load_and_no_request_is_lost(
    pair: Pair, kind: Kind, recovery: Callable[..., None]
) -> None:
    """One process of each service at a time, as a rollout does: not ready, seen, drained, gone, back. Fans ask for
    everything once; a stream that ends comes back with what it missed.
    """
    event_id = await pair.fleet.open_event(room=ROOM, sections=FLOOR)
    browser, seen = watched_browser(pair.urls[kind])
    listening, streams = watched_browser(pair.urls[kind])
    over = asyncio.Event()

    async def live() -> str:
        fan = await SteadyFan(browser, event_id).come_in()
        return str((await fan.buy(await fan.hold(ga=TICKET)))["status"])

    async with browser, listening:
        fans = [await SteadyFan(browser, event_id).come_in() for _ in range(EARS)]
        ears = [Ear(listening, fan) for fan in fans]
        hearing = asyncio.gather(*(ear.listen(over) for ear in ears))
        selling = asyncio.create_task(keep_coming(live, at_once=AT_ONCE, until_set=over))
        try:
            for copy in (1, 0):
                names = [pair.fleet.copies(service)[copy] for service in SERVICES]
                await asyncio.gather(*(pair.fleet.restart(name, signal.SIGTERM) for name in names))
                assert not selling.done(), selling.result()
        finally:
            over.set()
        ends = await selling
        await asyncio.wait_for(hearing, 40)
    assert not seen.lost, seen.told()
    assert not streams.lost, streams.told()
    assert len(ends) > AT_ONCE
    assert set(ends) == {"confirmed"}
    assert all(ear.ends >= 1 and ear.frames for ear in ears), "each was sent away at least once, and came back"
    await wait_until(lambda: _clean(pair, event_id), timeout_s=15, interval_s=0.3)
    longest_s = max(answer.took_s for answer in seen.answers)
    recovery(f"everything restarted behind {kind}, {len(seen.answers)} requests: the longest answer", longest_s,
             promise="no request lost")  # fmt: skip
    recovery(f"everything restarted behind {kind}: a stream silent at most", max(ear.deaf_s for ear in ears),
             promise="≤ 45 s / 10 s")  # fmt: skip


@pytest.mark.parametrize("kind", parameters())
async def test_one_process_of_each_service_is_killed_and_every_journey_ends_well(
    pair: Pair, kind: Kind, recovery: Callable[..., None]
) -> None:
    """`kill -9`, one after the other, each back before the next."""
    event_id = await pair.fleet.open_event(room=ROOM, sections=FLOOR)
    browser, seen = watched_browser(pair.urls[kind])
    over, numbers = asyncio.Event(), count(1)

    async def live() -> str:
        fan = await PatientFan(browser, event_id).come_in()
        return str((await fan.buys("slow" if next(numbers) % 3 == 0 else "ok", ga=TICKET))["status"])

    async with browser:
        selling = asyncio.create_task(keep_coming(live, at_once=AT_ONCE, until_set=over))
        try:
            for service in SERVICES:
                killed_s = time.monotonic()
                await pair.fleet.restart(service, signal.SIGKILL)
                assert not selling.done(), selling.result()
                lost = [answer.at_s for answer in seen.lost if answer.at_s >= killed_s]
                recovery(f"one of two {service} processes killed behind {kind}: the last failed answer after",
                         max(lost, default=killed_s) - killed_s, promise="≤ 15 s / 0")  # fmt: skip
        finally:
            over.set()
        ends = await selling
    assert all(answer.status == 503 and answer.retry_after for answer in seen.lost), seen.told()
    assert set(ends) == {"confirmed"}
    await wait_until(lambda: _clean(pair, event_id), timeout_s=30, interval_s=0.3)


async def _clean(pair: Pair, event_id: str) -> bool:
    return await pair.fleet.audit(event_id) == []
