"""The suite is killed during sales and started again on the same data; nothing acknowledged is lost."""

import asyncio
import os
import signal
import subprocess
import tempfile
from pathlib import Path

import httpx
import pytest

from tests.support.engines.engines import fast_directory
from tests.support.running.fans import fan_of
from tests.support.running.suite import RunningSuite, bearer, running_suite
from tests.support.wait import wait_until


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
