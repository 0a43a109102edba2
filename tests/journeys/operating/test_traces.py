"""One trace leads from joining to the confirmed order, through every service; a request that is not sampled makes no
span, and none has a secret.
"""

import logging
import re
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import REGISTRY, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics

from onsale.local.suite_services import Suite
from onsale.local.up import up
from shared.runtime import tracing
from shared.runtime.logging import CHATTY
from tests.support.engines.engines import fast_directory
from tests.support.running.suite import RunningSuite, bearer, fan_of, no_cookies
from tests.support.wait import wait_until
from tools.openapi import documents

pytestmark = [pytest.mark.journey, pytest.mark.timeout(120)]
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
NOT_SAMPLED = f"00-{TRACE}-00f067aa0ba902b7-00"


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    found, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(found))
    tracing.start(provider)
    yield found
    tracing.start(None)


@pytest.fixture
async def traced_suite(exporter: InMemorySpanExporter) -> AsyncIterator[RunningSuite]:
    """A suite in this process, so that its spans can be seen."""
    with tempfile.TemporaryDirectory(prefix="onsale-traced-", dir=fast_directory()) as folder:
        here = RunningSuite(Path(folder) / "data")
        async with up(Suite(here.data_dir, [], port=here.port, report=lambda _: None)):
            yield here


def browser(suite: RunningSuite, traceparent: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=suite.url, timeout=20, cookies=no_cookies(), headers={"traceparent": traceparent})


def of_trace(exporter: InMemorySpanExporter) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if f"{span.context.trace_id:032x}" == TRACE]


@pytest.mark.proof
async def test_one_trace_leads_from_joining_to_the_confirmed_order(
    traced_suite: RunningSuite, exporter: InMemorySpanExporter
) -> None:
    event_id = await traced_suite.open_event()
    async with browser(traced_suite, NOT_SAMPLED) as other:
        await fan_of(other, event_id).come_in()
    assert not exporter.get_finished_spans(), "nobody asked for these"
    async with browser(traced_suite, TRACEPARENT) as client:
        fan = await fan_of(client, event_id).come_in()
        placed = await fan.order(await fan.hold({"seats": ["A-1-1"]}))
        path = f"/orders/{placed['reference']}"
        async with client.stream("GET", f"{path}/updates", headers=bearer(placed["order_token"])) as stream:
            assert stream.status_code == 200
            async for line in stream.aiter_lines():
                if '"confirmed"' in line:
                    break
    expected = {
        "POST /events/{event_id}/queue", "POST /internal/joins", "POST /events/{event_id}/reservations",
        "redis services.inventory.redis_stock:hold", "POST /orders", "order charge", "external POST",
        "notifier order", "GET /orders/{reference}/updates",
    }  # fmt: skip
    await wait_until(lambda: expected <= {span.name for span in of_trace(exporter)}, timeout_s=20)
    served_by = {(span.attributes or {}).get("onsale.service") for span in of_trace(exporter)}
    assert served_by >= {"gateway", "queue", "inventory", "orders", "notifier"}
    exemplars = openmetrics.generate_latest(REGISTRY).decode()
    assert f'trace_id="{TRACE}"' in exemplars, "from a slow bucket to its trace"
    assert any(span.name.startswith("batch ") for span in of_trace(exporter))
    assert any(span.name.startswith("sql ") for span in of_trace(exporter))
    for span in exporter.get_finished_spans():
        assert (span.attributes or {}).keys() <= tracing.ALLOWED
        text = f"{span.name} {dict(span.attributes or {})} {span.events}"
        for secret in (
            fan.queue_token,
            fan.admission,
            fan.checkout_key,
            placed["order_token"],
            placed["reference"],
            "example.org",
            "A fan",
        ):
            assert str(secret) not in text


NAME, MAIL, CARD, TOKEN = (
    "Ada-Secretname",
    "ada.secret@example.org",
    "4242424242424242",
    "secret-token-0123456789abcdef",
)
BODY = {
    "reservation_id": "r", "expected_total_minor": 1, "currency": "EUR", "customer": {"name": NAME, "email": MAIL},
    "payment": {"provider": "sandbox", "method": "ok", "token": CARD}, "email": MAIL, "name": NAME, "code": TOKEN,
    "seats": [NAME], "unexpected": CARD,
}  # fmt: skip


async def test_no_secret_reaches_logs_spans_metrics_or_problems(
    traced_suite: RunningSuite, exporter: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
) -> None:
    """Names, addresses, card numbers and tokens are sent to every operation, by strangers and by an operator."""
    event_id = await traced_suite.open_event()
    secrets, asked = (NAME, MAIL, CARD, TOKEN, traced_suite.admin_key), 0
    with caplog.at_level(logging.INFO):
        async with browser(traced_suite, TRACEPARENT) as client:
            for document in documents().values():
                for path, item in document["paths"].items():
                    at = path.replace("{event_id}", event_id).replace("{reference}", TOKEN)
                    at = re.sub(r"\{\w+\}", TOKEN, at)
                    for method in item.keys() & {"get", "post", "put", "patch", "delete"}:
                        key = traced_suite.admin_key if path.startswith("/admin") else TOKEN
                        for credential in {key, TOKEN}:
                            headers = bearer(credential) | {"idempotency-key": TOKEN, "cookie": f"onsale_x={TOKEN}"}
                            answer = await client.request(
                                method, at, headers=headers, json=None if method == "get" else BODY,
                                params={"email": MAIL, "code": TOKEN},
                            )  # fmt: skip
                            asked += 1
                            if answer.headers.get("content-type", "").startswith("application/problem"):
                                assert not [text for text in secrets if text in answer.text], (method, path)
    assert asked > 100
    lines = [record for record in caplog.records if record.name not in CHATTY]
    logged = "\n".join(f"{line.getMessage()} {vars(line).get('data')} {line.exc_text}" for line in lines)
    assert "request" in logged
    spans = "\n".join(
        f"{span.name} {dict(span.attributes or {})} {span.events}" for span in exporter.get_finished_spans()
    )
    metrics = generate_latest().decode()
    for secret in secrets:
        assert secret not in logged
        assert secret not in spans
        assert secret not in metrics
