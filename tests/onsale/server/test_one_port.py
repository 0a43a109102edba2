"""The one port of `onsale up`: it routes as a load balancer does; only operators get metrics and readiness."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from httpx import ASGITransport, AsyncClient, Response
from prometheus_client.parser import text_string_to_metric_families
from starlette.types import Receive, Scope, Send

from onsale.server.merged_metrics import merged
from onsale.server.one_port import OnePort
from shared.security.auth import AdminKeys
from shared.web.answers import Answer

KEY = "k" * 24
STRANGER, LOCAL = "203.0.113.9", "127.0.0.1"
GUARDED = ("/readyz", "/gateway/readyz", "/gateway/metrics")


class Gateway:
    """The app of a service; it counts how often it is asked whether it is ready."""

    def __init__(self, status: int = 200) -> None:
        self.checks, self.status = 0, status

    def begin(self, scope: Scope, receive: Receive) -> Answer:
        self.checks += scope["path"] == "/readyz"
        return Answer(self.status, b"public " + scope["path"].encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.begin(scope, receive)(scope, receive, send)


async def get(
    path: str, peer: str = LOCAL, headers: Mapping[str, str] = {}, *,
    gateway: Gateway | None = None, waits_for: tuple[str, ...] = (),
) -> Response:  # fmt: skip
    async def metrics() -> bytes:
        return b"metrics of all"

    service: Any = gateway or Gateway()
    port = OnePort(
        {"gateway": service}, AdminKeys(f"ops:viewer:{KEY}"), started=lambda: list(waits_for), metrics=metrics
    )
    async with AsyncClient(transport=ASGITransport(port, client=(peer, 1)), base_url="http://x") as client:
        return (await asyncio.gather(*(client.get(path, headers=dict(headers)) for _ in range(5))))[-1]


@pytest.mark.parametrize("path", GUARDED)
async def test_a_stranger_gets_neither_metrics_nor_readiness(path: str) -> None:
    assert (await get(path, STRANGER)).status_code == 404
    assert (await get(path, LOCAL, {"x-forwarded-for": STRANGER})).status_code == 404, "a proxy on this machine"
    assert (await get(path, STRANGER, {"x-forwarded-for": LOCAL})).status_code == 404
    assert (await get(path, STRANGER, {"authorization": "Bearer " + "x" * 24})).status_code == 404


@pytest.mark.parametrize("path", GUARDED)
async def test_an_operator_gets_metrics_and_readiness(path: str) -> None:
    assert (await get(path, LOCAL)).status_code == 200
    assert (await get(path, STRANGER, {"authorization": f"Bearer {KEY}"})).status_code == 200


async def test_each_request_goes_where_the_table_says() -> None:
    assert (await get("/gateway/metrics")).text == "metrics of all"
    assert (await get("/gateway/livez", STRANGER)).text == "public /gateway/livez"
    assert (await get("/events/show/queue", STRANGER)).text == "public /events/show/queue"
    assert (await get("/livez", STRANGER)).json() == {"live": True}
    assert (await get("/metrics")).status_code == 404
    assert (await get("/console/")).status_code == 404, "of a service that is not here"


async def test_the_suite_is_ready_when_its_services_are_and_it_has_started() -> None:
    gateway = Gateway()
    assert (await get("/readyz", gateway=gateway)).json()["ready"]
    assert gateway.checks == 1, "readiness is kept for a moment"
    assert (await get("/readyz", gateway=Gateway(503))).json()["failing"] == ["gateway"]
    waiting = await get("/readyz", waits_for=("event files",))
    assert (waiting.status_code, waiting.json()["failing"]) == (503, ["event files"])


ONE = """# HELP joins_total Joins.
# TYPE joins_total counter
joins_total{outcome="joined"} 3.0
joins_total{outcome="a {b} c"} 1.0
# HELP lag Lag.
# TYPE lag histogram
lag_bucket{le="1"} 2.0
lag_count 2.0
"""
TWO = """# HELP joins_total Joins.
# TYPE joins_total counter
joins_total{outcome="joined"} 4.0
# HELP only_here Only here.
# TYPE only_here gauge
only_here 7.0
"""


def test_metrics_of_several_processes_are_one_text() -> None:
    text = merged({"suite-1": ONE, "suite-2": TWO})
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert text.count("# TYPE joins_total") == 1, "a family stands in one place"
    joined = {s.labels["process"]: s.value for s in families["joins"].samples if s.labels["outcome"] == "joined"}
    assert joined == {"suite-1": 3.0, "suite-2": 4.0}
    assert [sample.labels for sample in families["lag"].samples] == [
        {"process": "suite-1", "le": "1"}, {"process": "suite-1"},
    ]  # fmt: skip
    assert families["only_here"].samples[0].labels == {"process": "suite-2"}
