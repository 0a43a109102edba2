"""Two processes of every service behind nginx and HAProxy: the journey, a restart of everything under load that nobody
notices, and `kill -9` of one process of each service, which costs a moment of asking again.
"""

import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from onsale.local.engines import Engines
from shared.web.routes import SERVICES
from tests.drills.crowd import PatientFan
from tests.drills.pair import Crowd, Pair, SteadyFan, watched_browser
from tests.support.engines.engines import in_database, run_apart, sql
from tests.support.running.balancers import KINDS, Kind, parameters, program
from tests.support.running.suite import bearer
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
STEADY, PATIENT, EARS = 2, 6, 3


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
    await wait_until(lambda: pair.fleet.is_clean(event_id), timeout_s=15, interval_s=0.3)


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
            for name, port in zip(pair.fleet.copies(service), pair.fleet.internal_ports[service], strict=True):
                text = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
                lines = [line for line in text.splitlines() if line.startswith("onsale_http_request_seconds_count")]
                found[name] = sum(
                    float(line.rpartition(" ")[2]) for line in lines if "readyz" not in line and "metrics" not in line
                )
    return found


@asynccontextmanager
async def crowds(pair: Pair, event_id: str, fan: type[PatientFan], *, at_once: int) -> AsyncIterator[dict[Kind, Crowd]]:
    """A crowd behind each balancer, for as long as this lasts."""
    there = {kind: Crowd(pair, kind, event_id, fan, at_once=at_once, ears=EARS) for kind in KINDS}
    for crowd in there.values():
        await crowd.begin()
    try:
        yield there
    finally:
        for crowd in there.values():
            await crowd.end()


async def test_everything_is_restarted_under_load_and_no_request_is_lost(
    pair: Pair, recovery: Callable[..., None]
) -> None:
    """One process after the other, as a rollout does: not ready, seen, drained, gone, back. Fans ask for everything
    once; a stream that ends comes back with what it missed.
    """
    event_id = await pair.fleet.open_event(room=ROOM, sections=FLOOR)
    async with crowds(pair, event_id, SteadyFan, at_once=STEADY) as there:
        for name in (name for service in SERVICES for name in pair.fleet.copies(service)):
            await pair.fleet.restart(name, signal.SIGTERM)
            for crowd in there.values():
                crowd.check()
    for kind, crowd in there.items():
        assert not crowd.seen.lost, (kind, crowd.seen.told())
        assert not crowd.streams.lost, (kind, crowd.streams.told())
        assert len(crowd.ends) > STEADY
        assert set(crowd.ends) == {"confirmed"}
        assert all(ear.ends and ear.frames for ear in crowd.ears), "each was sent away at least once, and came back"
        asked, longest_s = len(crowd.seen.answers), max(answer.took_s for answer in crowd.seen.answers)
        recovery(f"ten processes restarted in turn behind {kind}: the longest answer", longest_s,
                 lost=f"none of {asked:,} requests", promise="no request lost")  # fmt: skip
        recovery(f"ten processes restarted in turn behind {kind}: a stream silent at most",
                 max(ear.deaf_s for ear in crowd.ears), promise="45 s / 10 s")  # fmt: skip
    await wait_until(lambda: pair.fleet.is_clean(event_id), timeout_s=15, interval_s=0.3)


async def test_one_process_of_each_service_is_killed_and_every_journey_ends_well(
    pair: Pair, recovery: Callable[..., None]
) -> None:
    """`kill -9`, one after the other, each back before the next."""
    event_id = await pair.fleet.open_event(room=ROOM, sections=FLOOR)
    async with crowds(pair, event_id, PatientFan, at_once=PATIENT) as there:
        for service in SERVICES:
            killed_s = time.monotonic()
            await pair.fleet.restart(service, signal.SIGKILL)
            for kind, crowd in there.items():
                crowd.check()
                since = [answer for answer in crowd.seen.answers if answer.at_s >= killed_s]
                again = [answer for answer in crowd.seen.lost if answer.at_s >= killed_s]
                longest_s = max((answer.took_s for answer in since), default=0.0)
                recovery(
                    f"one of two {service} processes killed behind {kind}: the longest wait", longest_s,
                    lost=f"nothing; {len(again)} of {len(since)} requests asked again", promise="15 s / 0",
                )  # fmt: skip
    for kind, crowd in there.items():
        told = [lost for lost in crowd.seen.lost if lost.status]  # the others' connection was closed without a word
        assert all(lost.status == 503 and lost.retry_after for lost in told), (kind, crowd.seen.told())
        assert set(crowd.ends) == {"confirmed"}
    await wait_until(lambda: pair.fleet.is_clean(event_id), timeout_s=30, interval_s=0.3)
