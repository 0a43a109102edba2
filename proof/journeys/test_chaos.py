"""Sixty simulated purchases with every kind of payment fault: fans keep what they were told, and the money is right.

The suite is killed during sales and started again on the same data; nothing acknowledged is lost. Parts of a suite fall
silent or are killed while an operator watches: the screen says so and goes on.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from pathlib import Path

import httpx
import pytest

from features.console.cli.watch import watched
from onsale.local.engines import Engines
from proof.drills.parts import SuiteOfParts, running_parts
from shared.contracts.admin.console import Part
from tests.support.engines.engines import fast_directory
from tests.support.running.fans import fan_of
from tests.support.running.suite import RunningSuite, bearer, running_suite
from tests.support.wait import wait_until

FANS = 60


def checked(history: Path, suite: RunningSuite) -> "subprocess.CompletedProcess[str]":
    """`onsale check-history`, run by an operator beside the suite."""
    command = [sys.executable, "-P", "-m", "onsale", "check-history", str(history)]
    environ = {name: value for name, value in os.environ.items() if "POSTGRES_URL" not in name}
    address = ["--data-dir", str(suite.data_dir)]
    return subprocess.run([*command, *address], capture_output=True, text=True, timeout=120, check=False, env=environ)


async def test_after_sixty_purchases_with_payment_faults_the_books_agree(suite: RunningSuite, tmp_path: Path) -> None:
    event_id = await suite.open_event(
        sections=[{"section_id": "GA", "name": "Floor", "kind": "ga", "capacity": 1000, "price_minor": 3000}]
    )
    report, history = tmp_path / "report.json", tmp_path / "history.jsonl"
    command = [sys.executable, "-P", "-m", "onsale", "simulate", "--event-id", event_id, "--fans", str(FANS)]
    options = ["--chaos", "--arrive-over", "1", "--streams", "5", "--seed", "7", "--json", str(report)]
    options += ["--history", str(history)]
    address = ["--url", suite.url, "--data-dir", str(suite.data_dir)]
    run = await asyncio.to_thread(
        subprocess.run, [*command, *options, *address], capture_output=True, text=True, timeout=240
    )
    assert run.returncode == 0, run.stdout + run.stderr
    kept = await asyncio.to_thread(checked, history, suite)
    assert kept.returncode == 0, kept.stdout + kept.stderr
    result = json.loads(report.read_text())
    assert result["bought"] > FANS / 4
    assert (result["books_wrong"], result["failed"], result["server_errors"]) == ([], {}, 0)
    async with httpx.AsyncClient() as client:
        charges = (await client.get(f"{suite.engines['sandbox_url']}/charges", params={"limit": 1000})).json()
    assert len({charge["method"] for charge in charges["charges"]}) >= 8
    assert any(charge["refunded_minor"] for charge in charges["charges"]), "some payments failed, as intended"


@pytest.mark.journey
async def test_a_suite_killed_during_sales_keeps_every_acknowledged_place_and_order() -> None:
    with tempfile.TemporaryDirectory(prefix="onsale-restart-", dir=fast_directory()) as folder:
        suite = RunningSuite(Path(folder) / "data").start().wait_until_ready()
        try:
            event_id = await suite.open_event()
            places, order_tokens = await sell_until_killed(suite, event_id)
            assert len(places) == len(set(places.values()))
            suite.start().wait_until_ready()
            await check_places_and_orders(suite, event_id, places, order_tokens)
        finally:
            suite.stop()


async def sell_until_killed(suite: RunningSuite, event_id: str) -> tuple[dict[str, int], dict[str, str]]:
    """Fans join and buy until `kill -9`. Returns the acknowledged places (queue token → `join_seq`) and orders
    (reference → order token).
    """
    places: dict[str, int] = {}
    order_tokens: dict[str, str] = {}

    async def join_and_buy(browser: httpx.AsyncClient, number: int) -> None:
        fan = fan_of(browser, event_id)
        await fan.join()
        places[str(fan.queue_token)] = fan.join_seq
        await fan.wait()
        await fan.claim()
        order = await fan.order(await fan.hold({"seats": [f"A-{1 + number // 10}-{1 + number % 10}"]}))
        order_tokens[order["reference"]] = order["order_token"]

    async with suite.browser() as browser:
        fans = [asyncio.create_task(join_and_buy(browser, number)) for number in range(40)]
        await wait_until(lambda: len(order_tokens) >= 5, timeout_s=20)
        suite.program.end(signal.SIGKILL)
        await asyncio.gather(*fans, return_exceptions=True)
    return places, order_tokens


async def check_places_and_orders(
    suite: RunningSuite, event_id: str, places: dict[str, int], order_tokens: dict[str, str]
) -> None:
    async with suite.browser() as browser:
        for token, join_seq in places.items():
            answer = await browser.get(f"/events/{event_id}/queue/status", headers=bearer(token))
            assert answer.json()["join_seq"] == join_seq

        async def all_are_confirmed() -> bool:
            answers = [
                await browser.get(f"/orders/{ref}", headers=bearer(token)) for ref, token in order_tokens.items()
            ]
            return all(answer.json()["status"] == "confirmed" for answer in answers)

        await wait_until(all_are_confirmed, timeout_s=40, interval_s=0.25)
        newcomer = fan_of(browser, event_id)
        await newcomer.join()
        assert newcomer.join_seq > max(places.values())
    await wait_until(lambda: suite.is_clean(event_id), timeout_s=20, interval_s=0.5)


@pytest.mark.journey
def test_no_process_is_left_after_ctrl_c_or_kill() -> None:
    with tempfile.TemporaryDirectory(prefix="onsale-left-", dir=fast_directory()) as folder:
        data_dir = Path(folder) / "data"
        suite = RunningSuite(data_dir).start().wait_until_ready()
        assert processes_of(data_dir)
        assert suite.stop(signal.SIGINT, within_s=10) == 0
        assert not processes_of(data_dir)
        suite.start().wait_until_ready()
        suite.program.end(signal.SIGKILL)
        asyncio.run(wait_until(lambda: not processes_of(data_dir), timeout_s=15))
        assert suite.start().wait_until_ready().stop(signal.SIGTERM, within_s=10) == 0


@pytest.mark.journey
async def test_a_fan_buys_from_several_processes_and_none_is_left() -> None:
    with running_suite(processes=2) as suite:
        event_id = await suite.open_event()
        async with suite.browser() as browser:
            fan = await fan_of(browser, event_id).come_in()
            order = await fan.buy(await fan.hold({"seats": ["A-1-1"], "ga": [{"section_id": "GA1", "quantity": 1}]}))
            assert order["status"] == "confirmed"
        assert await suite.wrong(event_id) == []
    assert not processes_of(suite.data_dir)


def processes_of(data_dir: Path) -> list[str]:
    """Command lines of other processes that name the data directory."""
    listed = subprocess.run(["ps", "-ww", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if str(data_dir) in line and int(line.split()[0]) != os.getpid()]


@pytest.fixture(scope="module")
def parts(engines: Engines, migrated: str) -> Iterator[SuiteOfParts]:
    with running_parts(engines, migrated, "parts_away") as suite:
        yield suite


async def test_a_part_that_is_silent_grows_old_within_three_seconds_and_the_others_do_not(
    parts: SuiteOfParts,
) -> None:
    event_id = await parts.open_event()
    inventory = parts.programs["inventory"]
    states = watched(parts.url, parts.admin_key, event_id)
    async with aclosing(states):
        await anext(states)
        inventory.send(signal.SIGSTOP)
        suspended_s = time.monotonic()
        try:
            ages: Mapping[Part, float | None] = {}
            async for state in states:
                ages = state.snapshot.vitals.ages
                if (ages["inventory"] or 0) > 1.5:
                    break
            assert time.monotonic() - suspended_s < 3.5
            assert all((ages[part] or 0) < 1.5 for part in ("queue", "orders", "notifier")), ages
        finally:
            inventory.send(signal.SIGCONT)
        async for state in states:
            if (state.snapshot.vitals.ages["inventory"] or 0) < 1.5:
                break


async def test_a_killed_console_leaves_the_sale_alone_and_the_screen_goes_on_when_it_is_back(
    parts: SuiteOfParts,
) -> None:
    event_id = await parts.open_event()
    states = watched(parts.url, parts.admin_key, event_id)
    async with aclosing(states), parts.browser() as browser:
        before = await anext(states)
        await parts.restart("console", signal.SIGKILL)
        await fan_of(browser, event_id).come_in()
        connected = []
        async for state in states:
            connected.append(state.connected)
            if state.connected and state.snapshot.vitals.line.claimed == 1:
                break
        assert False in connected, "the screen said that nobody answered"
        assert state.snapshot.vitals.at_ms > before.snapshot.vitals.at_ms
