"""The suite is killed in the middle of sales and started again on the same data: nothing acknowledged is lost."""

import asyncio
import os
import signal
import subprocess
import tempfile
from pathlib import Path

import httpx
import pytest

from tests.support.engines.engines import fast_place
from tests.support.running.suite import Fan, RunningSuite, bearer
from tests.support.wait import wait_until


@pytest.mark.journey
async def test_a_kill_in_the_middle_of_sales_loses_nothing_that_was_promised() -> None:
    with tempfile.TemporaryDirectory(prefix="onsale-restart-", dir=fast_place()) as folder:
        suite = RunningSuite(Path(folder) / "data").start().wait_until_ready()
        try:
            event_id = await suite.open_event()
            places, references = await sell_until_killed(suite, event_id)
            assert len(places) == len(set(places.values()))
            suite.start().wait_until_ready()
            await look_after(suite, event_id, places, references)
        finally:
            suite.stop()


async def sell_until_killed(suite: RunningSuite, event_id: str) -> tuple[dict[str, int], dict[str, str]]:
    """Fans join and buy until `kill -9`; what was acknowledged to them: tokens → numbers, references → order tokens."""
    places: dict[str, int] = {}
    references: dict[str, str] = {}

    async def live(browser: httpx.AsyncClient, number: int) -> None:
        fan = Fan(browser, event_id)
        await fan.join()
        places[fan.token] = fan.join_seq
        await fan.wait_for_the_call()
        await fan.claim()
        answer = await fan.order(await fan.hold(seats=[f"A-{1 + number // 10}-{1 + number % 10}"]))
        if answer.status_code == 202:
            references[answer.json()["reference"]] = answer.json()["order_token"]

    async with suite.browser() as browser:
        fans = [asyncio.create_task(live(browser, number)) for number in range(40)]
        await wait_until(lambda: len(references) >= 5, timeout_s=20)
        assert suite.process is not None
        suite.process.kill()
        suite.process.wait()
        await asyncio.gather(*fans, return_exceptions=True)
    return places, references


async def look_after(suite: RunningSuite, event_id: str, places: dict[str, int], references: dict[str, str]) -> None:
    async with suite.browser() as browser:
        for token, join_seq in places.items():
            answer = await browser.get(f"/events/{event_id}/queue/status", headers=bearer(token))
            assert answer.json()["join_seq"] == join_seq

        async def all_end_well() -> bool:
            answers = [await browser.get(f"/orders/{ref}", headers=bearer(token)) for ref, token in references.items()]
            return all(answer.json()["status"] == "confirmed" for answer in answers)

        await wait_until(all_end_well, timeout_s=40, interval_s=0.25)
        newcomer = Fan(browser, event_id)
        await newcomer.join()
        assert newcomer.join_seq > max(places.values())
    await wait_until(lambda: suite.is_clean(event_id), timeout_s=20, interval_s=0.5)


@pytest.mark.journey
def test_nothing_is_left_behind_after_ctrl_c_or_kill() -> None:
    with tempfile.TemporaryDirectory(prefix="onsale-left-", dir=fast_place()) as folder:
        data_dir = Path(folder) / "data"
        suite = RunningSuite(data_dir).start().wait_until_ready()
        assert processes_of(data_dir)
        assert suite.stop(signal.SIGINT, within_s=10) == 0
        assert not processes_of(data_dir)
        suite.start().wait_until_ready()
        assert suite.process is not None
        suite.process.kill()
        suite.process.wait()
        asyncio.run(wait_until(lambda: not processes_of(data_dir), timeout_s=15))
        assert suite.start().wait_until_ready().stop(signal.SIGTERM, within_s=10) == 0


@pytest.mark.journey
async def test_each_service_in_a_process_of_its_own_sells_as_well() -> None:
    with tempfile.TemporaryDirectory(prefix="onsale-processes-", dir=fast_place()) as folder:
        data_dir = Path(folder) / "data"
        suite = RunningSuite(data_dir, "--processes").start().wait_until_ready()
        try:
            event_id = await suite.open_event()
            async with suite.browser() as browser:
                fan = await Fan(browser, event_id).come_in()
                assert (await fan.buy(await fan.hold(seats=["A-1-1"], ga=[{"section_id": "GA1", "quantity": 1}])))[
                    "status"
                ] == "confirmed"
            assert await suite.audit(event_id) == []
        finally:
            assert suite.stop() == 0, suite.log_text()
        assert not processes_of(data_dir)


def processes_of(data_dir: Path) -> list[str]:
    """Command lines that name the data directory, our own apart."""
    listed = subprocess.run(["ps", "-ww", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if str(data_dir) in line and int(line.split()[0]) != os.getpid()]
