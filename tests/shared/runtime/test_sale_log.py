"""Lines of a sale: decided once for a request and all it causes, and by share for work that no request asked for.

Log lines are JSON whose own fields cannot be overwritten; a line of a request says of which. Tracing is off unless
asked for; requests are sampled before a span is made; spans take only allowed attributes.
"""

import json
import logging
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from shared.concurrency.coalescing import GroupCommit
from shared.errors.problems import SoldOut
from shared.runtime import tracing
from shared.runtime import tracing as module
from shared.runtime.logging import request_fields
from shared.runtime.tracing import SaleLog


class Lines(list[dict[str, Any]]):
    def info(self, name: str, **facts: Any) -> None:
        orjson.dumps(facts)
        self.append({**request_fields.get(), **facts, "name": name})


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Lines:
    collected = Lines()
    monkeypatch.setattr(module, "SALE", collected)
    return collected


def lines_of(share: float) -> SaleLog:
    made = SaleLog()
    made.use(share)
    return made


@pytest.mark.parametrize(("share", "on"), [(0.0, False), (0.01, True), (1.0, True)])
def test_a_share_of_nothing_is_off(share: float, on: bool) -> None:
    assert lines_of(share).on is on


def test_services_of_one_process_share_the_largest_share() -> None:
    made = lines_of(0.5)
    made.use(0.0)
    assert made.share == 0.5


@dataclass
class Sent:
    """A request, as far as its line shows it."""

    id: str
    method: str = "POST"
    status: int = 201
    path: Mapping[str, str] = field(default_factory=lambda: {"event_id": "e"})
    facts: Mapping[str, Any] = field(default_factory=dict)


def test_a_request_is_logged_with_all_it_causes_or_not_at_all(lines: Lines) -> None:
    made, logged = lines_of(0.5), 0
    for n in range(400):
        lines.clear()
        picked = made.picks_request("/events/e/queue", named=False)
        with made.request(picked):
            for _ in range(3):
                made.write("sale.engine")
        if picked:
            made.ended(Sent(f"r{n}"), "/events/{event_id}/queue", ms=1.234)
        assert len(lines) == 4 * picked
        logged += picked
    assert 100 < logged < 300


def test_a_call_of_a_logged_request_brings_its_id_and_is_logged_there(lines: Lines) -> None:
    made = lines_of(1e-9)
    fields = request_fields.set({"request_id": "abcdefgh-1"})
    with made.request(True):
        assert made.headers() == {"x-request-id": "abcdefgh-1"}
    assert made.headers() == {}
    request_fields.reset(fields)
    with made.request(made.picks_request("/internal/joins", named=True)):
        made.write("sale.engine")
    assert len(lines) == 1


async def test_a_batch_has_the_requests_of_its_members_and_how_it_ended_for_them(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.sale_log, "on", True)
    monkeypatch.setattr(module.sale_log, "share", 1e-9)

    async def work(items: list[str]) -> list[str | BaseException]:
        module.sale_log.write("sale.engine")
        return [SoldOut() if item == "late" else item for item in items]

    group: GroupCommit[str, str] = GroupCommit(work, name="holds", batch_max=10, waiting_max=10)
    request_fields.set({"request_id": "abcdefgh-2", "event_id": "e"})
    with module.sale_log.request(True):
        early = group.enqueue("early")
    late = group.enqueue("late")
    assert await early == "early"
    with pytest.raises(SoldOut):
        await late
    await group.close()
    engine, batch = lines
    assert (engine["name"], engine["request_id"], engine["event_id"]) == ("sale.engine", "abcdefgh-2", "e")
    assert (batch["batch"], batch["members"], batch["outcomes"]) == ("holds", 2, {"ok": 1, "sold-out": 1})
    assert (batch["request_ids"], batch["ms"] >= 0, batch["waited_ms"] >= 0) == (["abcdefgh-2"], True, True)


CODE = """
import logging
from shared.runtime.logging import get_logger, request_fields, write_json_lines
write_json_lines(logging.INFO)
log = get_logger("onsale.queue")
"""


def logged(code: str) -> list[dict]:
    """What a process that runs this code logs."""
    done = subprocess.run([sys.executable, "-c", CODE + code], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stderr.splitlines()]


def test_a_field_does_not_overwrite_a_field_of_the_line() -> None:
    [line] = logged('log.warning("stock.changed", level="INFO", section_id="A", at=1)')
    assert (line["event"], line["level"], line["logger"]) == ("stock.changed", "WARNING", "onsale.queue")
    assert line["section_id"] == "A"
    assert line["at"] > 1


def test_numbers_as_keys_of_a_field_do_not_fail_who_logs() -> None:
    [line] = logged('log.info("heads", heads={0: 7, 1: 3})')
    assert line["heads"] == {"0": 7, "1": 3}


def test_a_line_of_a_request_has_its_id_and_that_of_its_event() -> None:
    code = (
        'request_fields.set({"request_id": "r1", "event_id": "arena"})\nlog.info("a")\nlog.info("b", event_id="other")'
    )
    first, second = logged(code)
    assert (first["request_id"], first["event_id"]) == ("r1", "arena")
    assert (second["request_id"], second["event_id"]) == ("r1", "other"), "what the line says itself is nearer"


def test_an_outage_is_one_short_field_and_a_bug_a_traceback() -> None:
    code = "for failure in (ConnectionRefusedError('no'), KeyError('x')):\n    try:\n        raise failure\n"
    outage, bug = logged(f"{code}    except Exception:\n        log.exception('loop.failed')")
    assert "ConnectionRefusedError" in outage["error"]
    assert "Traceback" in bug["exception"]
    for line, own in ((outage, "error"), (bug, "exception")):
        assert line["level"] == "ERROR"
        assert not {"error", "exception", "exc_info"} - {own} & line.keys()


def test_records_of_libraries_have_the_same_form_and_debug_is_left_out() -> None:
    code = 'logging.getLogger("uvicorn").warning("no %s", "more", extra={"port": 1})\nlog.debug("x")'
    code += '\nlogging.getLogger("y").debug("z")'
    [line] = logged(code)
    assert (line["event"], line["level"], line["logger"], line["port"]) == ("no more", "WARNING", "uvicorn", 1)


def test_until_it_is_configured_a_line_goes_to_the_standard_library(caplog: pytest.LogCaptureFixture) -> None:
    from shared.runtime.logging import get_logger

    with caplog.at_level(logging.INFO):
        get_logger("onsale.test").info("a.name", seats=2)
    [record] = caplog.records
    assert (record.name, record.getMessage(), vars(record)["data"]) == ("onsale.test", "a.name", {"seats": 2})


def test_a_line_that_cannot_be_written_ends_nothing() -> None:
    """A background loop that logs why it failed, on a full disk, must not end by that."""
    code = CODE + 'log.error("loop.failed")\nlogging.getLogger("y").error("z")\nprint("went on")'
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=full, text=True, check=False)
    assert done.stdout == "went on\n"


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
