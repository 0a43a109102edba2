"""A real Alertmanager with the configuration of `deploy/prometheus`: what it is told is what the console shows."""

import signal
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from features.console.gathering import alertmanager as module
from features.console.gathering.alertmanager import Alertmanager
from onsale.deploy.monitoring_files import alertmanager_yml
from onsale.local.ports import free_port
from tests.support.programs import need
from tests.support.running.program import Program
from tests.support.wait import wait_until

EVENT = "arena"


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{free_port()}", trust_env=False) as client:
        yield client


@pytest.fixture
async def server(client: httpx.AsyncClient, tmp_path: Path) -> AsyncIterator[Program]:
    (tmp_path / "alertmanager.yml").write_text(alertmanager_yml())
    program = Program(
        [need("prometheus-alertmanager"), f"--config.file={tmp_path}/alertmanager.yml", f"--storage.path={tmp_path}",
         f"--web.listen-address={client.base_url.netloc.decode()}", "--cluster.listen-address="],
        tmp_path / "alertmanager.log",
    )  # fmt: skip
    program.start()

    async def is_ready() -> bool:
        try:
            return (await client.get("/-/ready")).is_success
        except httpx.HTTPError:
            return False

    await wait_until(is_ready, timeout_s=30)
    yield program
    program.end(signal.SIGKILL)


async def test_alerts_appear_end_and_leave_silence_behind_when_it_stops(
    server: Program, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EVERY_S", 0.2)
    monkeypatch.setattr(module, "SILENT_S", 2.0)
    console = Alertmanager(client, str(client.base_url), deadline_s=1.0)
    began = datetime.now(UTC) - timedelta(minutes=5)

    async def post(name: str, *, ends: datetime | None = None, **labels: str) -> None:
        alert: dict[str, Any] = {
            "labels": {"alertname": name, **labels}, "startsAt": began.isoformat(),
            "annotations": {"summary": f"{name} of {'/'.join(labels.values())}"},
        }  # fmt: skip
        answer = await client.post("/api/v2/alerts", json=[alert | ({"endsAt": ends.isoformat()} if ends else {})])
        assert answer.is_success, answer.text

    async def shows(**expected: str) -> None:
        def shown() -> bool:
            console.refresh()
            return {one.name: one.summary for one in console.alarms(EVENT)} == expected

        await wait_until(shown, timeout_s=15)

    await post("QueueLong", event_id=EVENT)
    await post("WaitLong", event_id="another")
    await post("NotOurs", event_id=EVENT)
    for instance in ("orders-1", "orders-2"):
        await post("ServiceDown", instance=instance)
    both = "2 alerts: ServiceDown of orders-1 · ServiceDown of orders-2"
    await shows(QueueLong="QueueLong of arena", ServiceDown=both)
    assert {one.since_ms for one in console.alarms(EVENT)} == {int(began.timestamp() * 1000)}
    await post("QueueVeryLong", event_id=EVENT)
    await shows(QueueVeryLong="QueueVeryLong of arena", ServiceDown=both)  # it inhibits the milder one
    await post("QueueVeryLong", event_id=EVENT, ends=datetime.now(UTC))
    await post("ServiceDown", instance="orders-2", ends=datetime.now(UTC))
    await shows(QueueLong="QueueLong of arena", ServiceDown="ServiceDown of orders-1")
    server.end(signal.SIGTERM)
    silence = "Alertmanager does not answer: only the alarms that the console decides itself are shown"
    await shows(AlertmanagerSilent=silence)
    server.start()
    await shows()  # it forgot its alerts; Prometheus sends them again
    await console.close()
