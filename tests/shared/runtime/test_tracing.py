"""Tracing is off unless asked for; requests are sampled before a span is made; spans take only allowed attributes."""

import time
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from shared.concurrency.coalescing import GroupCommit
from shared.runtime import tracing

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def scope(traceparent: str | None = None, path: str = "/events") -> dict:
    return {"method": "GET", "path": path, "headers": [(b"traceparent", traceparent.encode())] if traceparent else []}


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    found, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(found))
    tracing.start(provider, one_in=10)
    yield found
    tracing.start(None)


def test_it_is_off_without_an_endpoint_and_when_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(tracing.ENDPOINT, raising=False)
    tracing.start_from_environment()
    assert tracing.tracer is None
    monkeypatch.setenv(tracing.ENDPOINT, "http://127.0.0.1:1")
    monkeypatch.setenv(tracing.DISABLED, "true")
    tracing.start_from_environment()
    assert tracing.tracer is None
    assert tracing.headers() == {}
    with tracing.span("x", parent=PARENT):
        assert tracing.traceparent() is None


def test_an_endpoint_in_the_environment_starts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tracing.ENDPOINT, "http://127.0.0.1:1")
    monkeypatch.setenv(tracing.SAMPLED_ARG, "0.5")
    tracing.start_from_environment()
    try:
        assert tracing.tracer is not None
        assert sum(tracing.is_traced(scope()) for _ in range(100)) == 50
    finally:
        tracing.start(None)


def test_one_in_ten_is_traced_and_whoever_asks_for_it(exporter: InMemorySpanExporter) -> None:
    for _ in range(100):
        if tracing.is_traced(asked := scope()) and (request := tracing.begin_request("queue", asked)):
            tracing.end_request(request, method="GET", route="/x", status=200, event_id=None)
    assert len(exporter.get_finished_spans()) == 10
    assert all(tracing.is_traced(scope(PARENT)) for _ in range(10))


def test_a_crowd_that_asks_to_be_traced_is_traced_in_part_and_services_always(
    exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracing.start(TracerProvider())
    monkeypatch.setattr(time, "monotonic", lambda: 1e9)
    traced = sum(tracing.is_traced(scope(PARENT)) for _ in range(500))
    assert traced == tracing.REQUESTED_PER_S_MAX
    assert all(tracing.is_traced(scope(PARENT, "/internal/places")) for _ in range(500))
    monkeypatch.setattr(time, "monotonic", lambda: 1e9 + 1)
    assert tracing.is_traced(scope(PARENT))
    tracing._requested.clear()


@pytest.mark.parametrize(
    "parent", ["00-0-0-01", "nonsense", PARENT[:-1] + "0", "00-" + "0" * 32 + "-00f067aa0ba902b7-01"]
)
def test_a_malformed_or_unsampled_parent_traces_nothing(exporter: InMemorySpanExporter, parent: str) -> None:
    tracing.start(TracerProvider())
    assert not tracing.is_traced(scope(parent))
    with tracing.span("x", parent=parent):
        assert tracing.traceparent() is None


def test_a_span_takes_only_allowed_attributes(exporter: InMemorySpanExporter) -> None:
    with pytest.raises(AssertionError, match="not allowed"), tracing.span("x", parent=PARENT, email="a@b"):
        pass
    with tracing.span("x", parent=PARENT, members=3):
        assert tracing.traceparent() is not None
    assert exporter.get_finished_spans()[-1].attributes == {"onsale.members": 3}


async def test_a_batch_continues_the_trace_of_its_first_member_and_links_the_others(
    exporter: InMemorySpanExporter,
) -> None:
    async def work(items: list[int]) -> list[int]:
        return items

    batches: GroupCommit[int, int] = GroupCommit(work, name="test", batch_max=10, waiting_max=10)
    with tracing.span("first", parent=PARENT):
        first = batches.enqueue(1)
    with tracing.span("second", parent=PARENT):
        second = batches.enqueue(2)
    batches.enqueue(3)
    assert [await first, await second] == [1, 2]
    await batches.close()
    by_name = {span.name: span for span in exporter.get_finished_spans()}
    batch = by_name["batch test"]
    assert batch.parent is not None
    assert batch.parent.span_id == by_name["first"].context.span_id
    assert [link.context.span_id for link in batch.links] == [by_name["second"].context.span_id]
    assert batch.attributes == {"onsale.members": 3}
