"""Two processes of every service behind nginx and HAProxy: purchases, a rolling restart under load without a lost
request, and `kill -9` of one process of each service, after which fans retry.
"""

import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import httpx
import pytest

from onsale.local.engines import Engines
from proof.drills.fleet import BalancedFleet, FansBehindBalancer, NewFan, recording_browser
from proof.drills.sale import patient_fan, require_kept
from shared.routes import SALE_SERVICES, SERVICES
from tests.support.engines.engines import in_database, run_in_thread, sql
from tests.support.programs import needs
from tests.support.running.suite import KINDS, Kind, balancer_parameters, bearer, fan_of
from tests.support.wait import wait_until

pytestmark = [pytest.mark.timeout(600), needs(*KINDS)]
ROOM = {"rate_per_s": 50, "burst": 20, "max_active": 500}
FLOOR = [{"section_id": "GA", "name": "Floor", "kind": "ga", "capacity": 5000, "price_minor": 3000}]
STEADY, PATIENT, STREAMS = 2, 6, 3


@pytest.fixture(scope="module")
def balanced(engines: Engines, migrated: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BalancedFleet]:
    run_in_thread(sql(engines, f"create database pair template {migrated}"))
    running = BalancedFleet(tmp_path_factory.mktemp("pair"), in_database(engines, "pair"))
    try:
        yield running.start()
    finally:
        running.end()


@pytest.mark.parametrize("kind", balancer_parameters())
async def test_fans_buy_through_a_balancer_and_every_process_serves_some_requests(
    balanced: BalancedFleet, kind: Kind
) -> None:
    event_id = await balanced.fleet.open_event(room=ROOM)
    browser, answers = recording_browser(balanced.urls[kind], balanced.fleet.history)
    async with browser:
        before = await _request_counts(balanced)
        for seat in range(1, 9):
            fan = await fan_of(browser, event_id).come_in()
            async with browser.stream(
                "GET", f"/events/{event_id}/sections/updates", headers=bearer(fan.queue_token)
            ) as stream:
                lines = stream.aiter_lines()
                await _wait_for_sections(lines)
                reservation = await fan.hold({"seats": [f"A-1-{seat}"]})
                held_s = time.monotonic()
                await _wait_for_sections(lines)
                assert time.monotonic() - held_s < 5, "frames are not buffered"
            order = await fan.buy(reservation)
            assert order["status"] == "confirmed"
        after = await _request_counts(balanced)
    assert not answers.lost
    assert {name for name in after if after[name] > before[name]} == set(after), "every process served requests"
    await wait_until(lambda: balanced.fleet.is_clean(event_id), timeout_s=15, interval_s=0.3)
    await require_kept(balanced.fleet, event_id)


async def _wait_for_sections(lines: AsyncIterator[str]) -> None:
    """Returns at the next frame of sections."""
    async for line in lines:
        if line == "event: sections":
            return
    raise AssertionError("the stream has ended")


async def _request_counts(balanced: BalancedFleet) -> dict[str, float]:
    """The number of requests that each process of what fans use answered, without probes."""
    counts = {}
    async with httpx.AsyncClient(trust_env=False) as client:
        for service in SALE_SERVICES:
            for name, port in zip(balanced.fleet.copies(service), balanced.fleet.internal_ports[service], strict=True):
                text = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
                lines = [line for line in text.splitlines() if line.startswith("onsale_http_request_seconds_count")]
                counts[name] = sum(
                    float(line.rpartition(" ")[2]) for line in lines if "readyz" not in line and "metrics" not in line
                )
    return counts


@asynccontextmanager
async def fans_behind_balancers(
    balanced: BalancedFleet, event_id: str, fan: NewFan, *, at_once: int
) -> AsyncIterator[dict[Kind, FansBehindBalancer]]:
    """Fans behind each balancer while the context lasts."""
    by_kind = {
        kind: FansBehindBalancer(balanced, kind, event_id, fan, at_once=at_once, readers=STREAMS) for kind in KINDS
    }
    for fans in by_kind.values():
        await fans.begin()
    try:
        yield by_kind
    finally:
        for fans in by_kind.values():
            await fans.end()


async def test_a_rolling_restart_under_load_loses_no_request(
    balanced: BalancedFleet, recovery: Callable[..., None]
) -> None:
    """Restarts one process after the other, as a rollout does. Fans do not retry; a stream that ends reconnects and
    gets what it missed.
    """
    event_id = await balanced.fleet.open_event(room=ROOM, sections=FLOOR)
    async with fans_behind_balancers(balanced, event_id, fan_of, at_once=STEADY) as by_kind:
        for name in (name for service in SERVICES for name in balanced.fleet.copies(service)):
            await balanced.fleet.restart(name, signal.SIGTERM)
            for fans in by_kind.values():
                fans.check()
    for kind, fans in by_kind.items():
        assert not fans.answers.lost, (kind, fans.answers.failures())
        assert not fans.stream_answers.lost, (kind, fans.stream_answers.failures())
        assert len(fans.order_statuses) > STEADY
        assert set(fans.order_statuses) == {"confirmed"}
        assert all(reader.ended_streams and reader.frames for reader in fans.readers), (
            "each stream ended at least once and reconnected"
        )
        request_count, longest_s = len(fans.answers.answers), max(answer.took_s for answer in fans.answers.answers)
        recovery(f"ten processes restarted in turn behind {kind}: the longest answer", longest_s,
                 lost=f"none of {request_count:,} requests", promise="no request lost")  # fmt: skip
        recovery(f"ten processes restarted in turn behind {kind}: a stream silent at most",
                 max(reader.longest_silence_s for reader in fans.readers), promise="45 s / 10 s")  # fmt: skip
    await wait_until(lambda: balanced.fleet.is_clean(event_id), timeout_s=15, interval_s=0.3)
    await require_kept(balanced.fleet, event_id)


async def test_every_purchase_succeeds_although_one_process_of_each_service_is_killed(
    balanced: BalancedFleet, recovery: Callable[..., None]
) -> None:
    """Kills one process after the other, each restarted before the next."""
    event_id = await balanced.fleet.open_event(room=ROOM, sections=FLOOR)
    async with fans_behind_balancers(balanced, event_id, patient_fan, at_once=PATIENT) as by_kind:
        for service in SERVICES:
            killed_s = time.monotonic()
            await balanced.fleet.restart(service, signal.SIGKILL)
            for kind, fans in by_kind.items():
                fans.check()
                since = [answer for answer in fans.answers.answers if answer.at_s >= killed_s]
                repeated = [answer for answer in fans.answers.lost if answer.at_s >= killed_s]
                longest_s = max((answer.took_s for answer in since), default=0.0)
                recovery(
                    f"one of two {service} processes killed behind {kind}: the longest wait", longest_s,
                    lost=f"nothing; {len(repeated)} of {len(since)} requests asked again", promise="15 s / 0",
                )  # fmt: skip
    for kind, fans in by_kind.items():
        # status 0: the connection was closed without an answer
        refused = [lost for lost in fans.answers.lost if lost.status]
        assert all(lost.status == 503 and lost.retry_after for lost in refused), (kind, fans.answers.failures())
        assert set(fans.order_statuses) == {"confirmed"}
    await wait_until(lambda: balanced.fleet.is_clean(event_id), timeout_s=30, interval_s=0.3)
    await require_kept(balanced.fleet, event_id)
