"""A real Prometheus and Alertmanager beside a suite, with the files of `deploy/prometheus` and a receiver of alarms."""

import json
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
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
from tests.support.wait import wait_until

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
