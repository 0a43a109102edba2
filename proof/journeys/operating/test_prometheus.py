"""A real Prometheus beside the suite, in one process and in three: its sums equal what the fans
did, and alarms fire from faults, reach their route and end.

A real Prometheus and Alertmanager beside a suite, with the files of `deploy/prometheus` and a receiver of alarms.
"""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onsale.data_dir import TARGETS_FILE
from onsale.deploy.monitoring_files import Receivers, alertmanager_yml, alerts_yml, prometheus_yml
from onsale.local.ports import free_port
from tests.support.programs import need
from tests.support.running.program import Program
from tests.support.running.serving import serving
from tests.support.running.suite import RunningSuite, bearer, fan_of, running_suite
from tests.support.wait import wait_until
from tests.tools.test_clients import EXPRESSIONS

SCRAPE_S = 1


@dataclass
class Prometheus:
    """Asks the server; `received` has the alarms that reached each receiver: name, status."""

    http: httpx.AsyncClient
    received: dict[str, list[tuple[str, str]]] = field(default_factory=lambda: {"pager": [], "chat": []})

    async def value(self, expression: str) -> float:
        """The value of an instant query; 0 without a result."""
        found = await self.series(expression)
        assert len(found) <= 1, found
        return float(found[0]["value"][1]) if found else 0.0

    async def is_value(self, expression: str, expected: float) -> bool:
        return await self.value(expression) == expected

    async def series(self, expression: str) -> list[dict[str, Any]]:
        """The series of an instant query. Raises `httpx.HTTPError` while the server starts."""
        answer = await self.http.get("/api/v1/query", params={"query": expression})
        return list(answer.raise_for_status().json()["data"]["result"])


@asynccontextmanager
async def prometheus_beside(data_dir: Path, folder: Path, *, processes: int) -> AsyncIterator[Prometheus]:
    """Scrapes the suite of this data directory every second, once it has found all its processes."""
    port, alertmanager_port = free_port(), free_port()
    config = yaml.safe_load(prometheus_yml())
    config["global"] = {"scrape_interval": f"{SCRAPE_S}s", "evaluation_interval": f"{SCRAPE_S}s"}
    config["scrape_configs"][0]["file_sd_configs"] = [{"files": [str(data_dir / TARGETS_FILE)]}]
    config["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{alertmanager_port}"]}]}]}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    (folder / "alerts.yml").write_text(alerts_yml())
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}"))
        found = Prometheus(http)
        hooks = await stack.enter_async_context(serving(_receivers(found)))
        receivers = Receivers(f"http://127.0.0.1:{hooks}/pager", f"http://127.0.0.1:{hooks}/chat")
        routes = yaml.safe_load(alertmanager_yml(receivers))
        routes["route"] |= {"group_wait": "1s", "group_interval": "1s"}
        (folder / "alertmanager.yml").write_text(yaml.safe_dump(routes))
        for name, command in (
            ("prometheus", ["--config.file=prometheus.yml", f"--web.listen-address=127.0.0.1:{port}",
                            "--storage.tsdb.path=data"]),
            ("prometheus-alertmanager", ["--config.file=alertmanager.yml", "--storage.path=alerts",
                                         f"--web.listen-address=127.0.0.1:{alertmanager_port}",
                                         "--cluster.listen-address="]),
        ):  # fmt: skip
            arguments = [part.replace("=prometheus.yml", f"={folder}/prometheus.yml")
                         .replace("=alertmanager.yml", f"={folder}/alertmanager.yml")
                         .replace("path=", f"path={folder}/") for part in command]  # fmt: skip
            program = Program([need(name), *arguments], folder / f"{name}.log")
            program.start()
            stack.callback(program.end, signal.SIGKILL)

        async def is_scraping() -> bool:
            try:
                return await found.is_value('count(up{job="onsale"} == 1)', processes)
            except httpx.HTTPError:
                return False

        await wait_until(is_scraping, timeout_s=60, interval_s=0.2)
        yield found


def _receivers(found: Prometheus) -> Starlette:
    async def receive(request: Request) -> Response:
        body: dict[str, Any] = json.loads(await request.body())
        alarms = [(alert["labels"]["alertname"], alert["status"]) for alert in body["alerts"]]
        found.received[request.path_params["name"]] += alarms
        return Response()

    return Starlette(routes=[Route("/{name}", receive, methods=["POST"])])


pytestmark = pytest.mark.journey
FANS = 12
SUMS = {
    'gateway_joins_total{outcome="joined"}': FANS,
    "queue_joined_total": FANS,
    "queue_called_total": FANS,
    "queue_wait_seconds_count": FANS,
    'inventory_holds_total{outcome="held"}': FANS,
    'orders_orders_total{status="confirmed"}': FANS,
    'onsale_http_request_seconds_count{route="/orders",method="POST",status="202"}': FANS,
    "onsale_http_failures_total": 0,
    "notifier_streams_opened_total": FANS,
}
PROCESSES = 3


@pytest.fixture(scope="module", params=[1, pytest.param(PROCESSES, marks=pytest.mark.proof)])
def mode(request: pytest.FixtureRequest) -> Iterator[tuple[RunningSuite, int]]:
    if request.param == 1:
        yield request.getfixturevalue("suite"), 1
        return
    with running_suite(processes=request.param) as running:
        yield running, request.param


async def test_prometheus_sums_what_the_fans_did(mode: tuple[RunningSuite, int], tmp_path: Path) -> None:
    suite, processes = mode
    event_id = await suite.open_event()
    async with (
        prometheus_beside(suite.data_dir, tmp_path, processes=processes) as prometheus,
        suite.browser() as browser,
    ):
        before = {name: await prometheus.value(f"sum({name})") for name in SUMS}

        async def buys(number: int) -> None:
            fan = await fan_of(browser, event_id).come_in()
            async with browser.stream(
                "GET", f"/events/{fan.event_id}/sections/updates", headers=bearer(fan.queue_token)
            ) as stream:
                assert stream.status_code == 200
                await anext(stream.aiter_raw())
            order = await fan.buy(await fan.hold({"seats": [f"A-{1 + number // 10}-{1 + number % 10}"]}))
            assert order["status"] == "confirmed"

        await asyncio.gather(*map(buys, range(FANS)))
        for name, expected in SUMS.items():
            is_counted = partial(prometheus.is_value, f"sum({name})", before[name] + expected)
            await wait_until(is_counted, timeout_s=20, interval_s=0.2)
        assert (await browser.get("/metrics")).status_code == 404, "not for the public"


async def test_every_panel_of_every_board_has_data(suite: RunningSuite, tmp_path: Path) -> None:
    event_id = await suite.open_event()
    async with (
        prometheus_beside(suite.data_dir, tmp_path, processes=1) as prometheus,
        suite.browser() as browser,
    ):
        fan = await fan_of(browser, event_id).come_in()
        await fan.buy(await fan.hold({"seats": ["A-1-1"]}))

        async def without_data() -> list[str]:
            return [title for title, expression in EXPRESSIONS.items() if not await prometheus.series(expression)]

        async def all_have_data() -> bool:
            return await without_data() == []

        try:
            await wait_until(all_have_data, timeout_s=60, interval_s=1)
        except AssertionError:
            raise AssertionError(f"no data: {await without_data()}") from None


async def test_an_alarm_fires_reaches_its_route_and_ends(suite: RunningSuite, tmp_path: Path) -> None:
    """A room that calls nobody pages until it calls again."""
    event_id = await suite.open_event(room={"rate_per_s": 0})
    async with (
        prometheus_beside(suite.data_dir, tmp_path, processes=1) as prometheus,
        suite.browser() as browser, suite.operator() as operator,
    ):  # fmt: skip
        await asyncio.gather(*(fan_of(browser, event_id).join() for _ in range(110)))
        await reaches(prometheus, "pager", "LineStandsStill", "firing")
        patch = {"rate_per_s": 1000, "reason": "test"}
        answer = await operator.patch(f"/admin/events/{event_id}/room", json=patch)
        assert answer.is_success, answer.text
        await reaches(prometheus, "pager", "LineStandsStill", "resolved")
        assert "LineStandsStill" not in dict(prometheus.received["chat"])


async def reaches(prometheus: Prometheus, receiver: str, alarm: str, status: str) -> None:
    await wait_until(lambda: (alarm, status) in prometheus.received[receiver], timeout_s=90, interval_s=0.2)
