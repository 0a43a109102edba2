"""Whole suites share a port: fans of a killed process go on at another within seconds and miss no change, nothing that
was acknowledged is lost, and limits, metrics and operators' changes are those of all processes.
"""

import asyncio
import signal
import time
from collections.abc import Iterator
from typing import Any

import httpx
import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families

from onsale.client import Fan, Problem
from onsale.client.connection import NO_ANSWER
from tests.support.running.suite import RunningSuite, bearer, fan_of, running_suite
from tests.support.wait import wait_until

FANS, BUYERS = 12, 30
BACK_WITHIN_S = 30.0  # for a busy machine; the drills measure how long it takes
NO_READ_TIMEOUT = httpx.Timeout(30, read=None)  # a stream is silent while nothing changes
FAN_CALLS_AT_ONCE = 100  # of one fan at the gateway


@pytest.fixture(scope="module")
def suite() -> Iterator[RunningSuite]:
    with running_suite(processes=2) as running:
        yield running


class StreamReader:
    """Reads a stream as a page does: applies frames, and reconnects with the last id after the server's retry time."""

    def __init__(self, browser: httpx.AsyncClient, fan: Fan) -> None:
        self._browser, self._fan = browser, fan
        self.sections: dict[str, int] = {}
        self.connections = 0
        self.open = False
        self._last_id = ""
        self._retry_s = 0.1

    async def run(self) -> None:
        while True:
            headers = {**bearer(self._fan.queue_token), "last-event-id": self._last_id}
            try:
                path = f"/events/{self._fan.event_id}/sections/updates"
                async with self._browser.stream("GET", path, headers=headers, timeout=NO_READ_TIMEOUT) as stream:
                    self.connections += stream.status_code == 200
                    await self._read(stream)
            except httpx.HTTPError:
                pass
            self.open = False
            await asyncio.sleep(self._retry_s)

    async def _read(self, stream: httpx.Response) -> None:
        event: dict[str, str] = {}
        async for row in stream.aiter_lines():
            self.open = True
            name, _, value = row.partition(": ")
            if name == "retry":
                self._retry_s = int(value) / 1000
            if row:
                event[name] = value
                continue
            if event.get("event") == "sections":
                self._apply(orjson.loads(event["data"]))
            self._last_id, event = event.get("id", self._last_id), {}

    def _apply(self, data: Any) -> None:
        counts = {section["section_id"]: section["available_seats"] for section in data["sections"]}
        self.sections = self.sections | counts if data.get("delta") else counts


async def both_listen(suite: RunningSuite) -> bool:
    """Whether each process is ready, at its own address."""
    async with httpx.AsyncClient(timeout=5) as client:
        for url in suite.processes():
            try:
                if not (await client.get(f"{url}/readyz")).is_success:
                    return False
            except httpx.HTTPError:
                return False
    return len(suite.processes()) == 2


async def test_fans_of_a_killed_process_go_on_at_another_and_get_the_final_state(suite: RunningSuite) -> None:
    event_id = await suite.open_event()
    async with suite.browser() as browser, asyncio.TaskGroup() as group:
        fans = [fan_of(browser, event_id) for _ in range(FANS)]
        await asyncio.gather(*(fan.join() for fan in fans))
        readers = [StreamReader(browser, fan) for fan in fans]
        tasks = [group.create_task(reader.run()) for reader in readers]
        await wait_until(lambda: all(reader.sections for reader in readers))
        buyer = await fan_of(browser, event_id).come_in()
        before = [reader.connections for reader in readers]
        url, killed = next(iter(suite.processes().items()))
        killed.send_signal(signal.SIGKILL)
        killed_s = time.monotonic()

        await insisting(lambda: buyer.hold({"seats": ["A-1-1"], "ga": [{"section_id": "GA1", "quantity": 2}]}))
        final = {"A": 39, "GA1": 48}
        await wait_until(
            lambda: all(reader.open and reader.sections == final for reader in readers), timeout_s=BACK_WITHIN_S
        )
        assert time.monotonic() - killed_s < BACK_WITHIN_S
        again = [reader.connections - earlier for reader, earlier in zip(readers, before, strict=True)]
        assert any(again), "no fan was connected to the killed process"
        assert not all(again), "every fan was"
        await wait_until(lambda: both_listen(suite), timeout_s=60)
        assert suite.processes()[url].pid != killed.pid
        for task in tasks:
            task.cancel()
    assert "Starting it again" in suite.log_text()


async def test_a_process_that_is_killed_during_a_sale_loses_nothing(suite: RunningSuite) -> None:
    await wait_until(lambda: both_listen(suite), timeout_s=60)
    event_id = await suite.open_event(sales={"tickets_per_order": 1, "tickets_per_customer": 6})
    orders: dict[str, str] = {}

    async def buys(number: int) -> None:
        """As a page does, a fan asks again when a connection breaks."""
        async with suite.browser() as browser:
            fan = fan_of(browser, event_id)
            for step in (fan.join, fan.wait, fan.claim):
                await insisting(step)
            hold = await insisting(lambda: fan.hold({"seats": [f"A-{1 + number // 10}-{1 + number % 10}"]}))
            placed = await insisting(lambda: fan.order(hold))
            orders[placed["reference"]] = placed["order_token"]

    sale = [asyncio.create_task(buys(number)) for number in range(BUYERS)]
    await wait_until(lambda: len(orders) >= 3, timeout_s=30)
    list(suite.processes().values())[1].send_signal(signal.SIGKILL)
    await asyncio.gather(*sale)
    async with suite.browser() as browser:

        async def all_are_confirmed() -> bool:
            answers = [await browser.get(f"/orders/{name}", headers=bearer(token)) for name, token in orders.items()]
            return [each.json()["status"] for each in answers] == ["confirmed"] * BUYERS

        await wait_until(all_are_confirmed, timeout_s=60, interval_s=0.5)
    await wait_until(lambda: both_listen(suite), timeout_s=60)
    await wait_until(lambda: suite.is_clean(event_id), timeout_s=30, interval_s=0.5)
    assert await suite.wrong(event_id) == []


async def insisting(step: Any) -> Any:
    """What the step answers once it reaches somebody; every step is idempotent."""
    for _ in range(100):
        try:
            return await step()
        except Problem as problem:
            if problem.status != NO_ANSWER:
                raise
            await asyncio.sleep(0.1)
    raise AssertionError("nobody answers")


async def test_limits_metrics_and_changes_are_those_of_all_processes(suite: RunningSuite) -> None:
    await wait_until(lambda: both_listen(suite), timeout_s=60)
    event_id = await suite.open_event(room={"rate_per_s": 0.01, "burst": 1})
    urls = list(suite.processes())
    async with httpx.AsyncClient(timeout=20) as client, suite.browser() as browser, suite.operator() as operator:
        fan = fan_of(browser, event_id)
        await fan.join()
        path = f"/events/{event_id}/queue/status"

        async def statuses(url: str) -> list[int]:
            asked = [client.get(f"{url}{path}", headers=bearer(fan.queue_token)) for _ in range(FAN_CALLS_AT_ONCE)]
            return [answer.status_code for answer in await asyncio.gather(*asked)]

        answers = [await statuses(url) for url in urls]
        assert all({200, 429} == set(each) for each in answers), "each process allows its part"
        assert sum(each.count(200) for each in answers) < 1.5 * FAN_CALLS_AT_ONCE, "tokens come while it is asked"

        message = {"message": "We go on at nine.", "reason": "test"}
        assert (await operator.post(f"/admin/events/{event_id}/room/message", json=message)).is_success
        for url in urls:

            async def is_told(url: str = url) -> bool:
                return "We go on at nine." in (await client.get(f"{url}/events/{event_id}/queue")).text

            await wait_until(is_told, timeout_s=20)

        metrics = (await client.get(f"{urls[0]}/gateway/metrics")).text
        limited = {
            sample.labels["process"]: sample.value
            for family in text_string_to_metric_families(metrics) for sample in family.samples
            if sample.name == "gateway_refused_by_limit_total" and sample.labels.get("limit") == "fan"
        }  # fmt: skip
        assert limited.keys() == {"suite-1", "suite-2"}
        assert all(limited.values())
