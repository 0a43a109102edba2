"""The history file: answers become lines before their reader gets them, and nothing else does.

What credentials say of a fan, read without verification: a history must never stumble over a strange one.

The table of acknowledgements: nothing of the published API that changes something is missing in it.
"""

import asyncio
import gzip
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from onsale.history.acknowledgements import NOTHING_ACKNOWLEDGED, RECORDED, claims, document, fan_of
from onsale.history.transport import History, RecordingTransport
from shared.security.tokens import Keyring, Pass, QueueToken, QueueTokens, sign_pass
from tests.support.providers.identity_provider import jwt_by_secret

TOKEN = QueueTokens(Keyring({"k1": b"x" * 32})).sign(QueueToken("arena", 3, 1, 17, "fan-1", 1_700_000_000))
PLACE = {"queue_token": TOKEN, "join_seq": 17, "lane": 1, "epoch": 3, "status": "waiting", "position_in_queue": 4}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.jsonl"


def client(path: Path, answer: httpx.Response) -> httpx.AsyncClient:
    transport = httpx.MockTransport(lambda _: answer)
    return httpx.AsyncClient(base_url="http://suite", transport=RecordingTransport(transport, History(path)))


async def test_a_join_is_a_line_with_its_holder(path: Path) -> None:
    async with client(path, httpx.Response(201, json=PLACE)) as browser:
        answer = await browser.post("/events/arena/queue?x=1", headers={"idempotency-key": "a-secret-key"})
    assert answer.json() == PLACE
    [line] = lines(path)
    assert line["what"] == "joined"
    assert (line["event_id"], line["epoch"], line["lane"], line["join_seq"], line["fan"]) == (
        "arena", 3, 1, 17, "fan-1",
    )  # fmt: skip
    assert line["sent_ms"] <= line["at_ms"]
    assert line["key"]
    assert "a-secret-key" not in str(line)
    assert TOKEN not in str(line)


async def test_a_compressed_answer_is_recorded_and_arrives(path: Path) -> None:
    packed = gzip.compress(json.dumps(PLACE).encode())
    async with client(path, httpx.Response(201, content=packed, headers={"content-encoding": "gzip"})) as browser:
        assert (await browser.post("/events/arena/queue")).json() == PLACE
    assert lines(path)[0]["join_seq"] == 17


class Stream(httpx.AsyncByteStream):
    """Frames of an order, cut where no line ends."""

    def __init__(self, *parts: bytes) -> None:
        self._parts = parts

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self._parts:
            yield part


async def test_each_frame_of_an_orders_stream_is_a_line_before_the_fan_reads_it(path: Path) -> None:
    stream = Stream(
        b'event: order\ndata: {"reference": "A-1", "status": "pend', b'ing"}\n\nevent: beat\ndata: {}\n\n',
        b'event: order\nid: 1.2\ndata: {"reference": "A-1", "status": "confirmed"}\n\n',
    )  # fmt: skip
    answer = httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=stream)
    async with client(path, answer) as browser, browser.stream("GET", "/orders/A-1/updates") as reading:
        written = [[line["status"] for line in lines(path)] async for _ in reading.aiter_raw()]
    assert written == [[], ["pending"], ["pending", "confirmed"]]
    assert {line["what"] for line in lines(path)} == {"order_frame"}


@pytest.mark.parametrize("status", [404, 409, 429])
async def test_a_refusal_acknowledges_nothing(path: Path, status: int) -> None:
    async with client(path, httpx.Response(status, json={})) as browser:
        await browser.post("/events/arena/queue")
    assert lines(path) == []


async def test_a_request_that_may_have_been_executed_is_a_line(path: Path) -> None:
    async with client(path, httpx.Response(503, json={})) as browser:
        await browser.delete("/events/arena/reservations/R-1")
        await browser.get("/events/arena/reservations/R-1")
        await browser.post("/orders/quote")
    [line] = lines(path)
    assert (line["what"], line["of"]) == ("unanswered", "DELETE /events/{event_id}/reservations/{reservation_id}")
    assert (line["reservation_id"], line["status"]) == ("R-1", 503)


async def test_a_request_without_an_answer_is_a_line(path: Path) -> None:
    def lost(_: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("reset")

    transport = RecordingTransport(httpx.MockTransport(lost), History(path))
    async with httpx.AsyncClient(base_url="http://suite", transport=transport) as browser:
        with pytest.raises(httpx.ReadError):
            await browser.post("/orders/A-1/cancel")
    [line] = lines(path)
    assert (line["what"], line["reference"], line["status"]) == ("unanswered", "A-1", 0)


async def test_the_stream_of_an_event_acknowledges_nothing(path: Path) -> None:
    headers = {"content-type": "text/event-stream"}
    stream = httpx.Response(200, headers=headers, stream=Stream(b"data: {}\n\n"))
    async with client(path, stream) as browser:
        assert (await browser.get("/events/arena/sections/updates")).text == "data: {}\n\n"
    assert lines(path) == []


async def test_what_the_token_says_of_a_place_is_in_its_position(path: Path) -> None:
    waiting = {"status": "waiting", "join_seq": 17, "position_in_queue": 4, "state": "open", "head_seq": 12}
    async with client(path, httpx.Response(200, json=waiting)) as browser:
        await browser.get("/events/arena/queue/status", headers={"authorization": f"Bearer {TOKEN}"})
    async with client(path, httpx.Response(200, json=waiting | {"status": "ready"})) as browser:
        await browser.get("/events/arena/queue/status", headers={"authorization": f"Bearer {TOKEN}"})
    position, called = lines(path)
    assert (position["what"], position["lane"], position["epoch"], position["position_in_queue"]) == (
        "position",
        1,
        3,
        4,
    )
    assert called["what"] == "called"


def test_notes_stand_between_acknowledgements(path: Path) -> None:
    with History(path) as history:
        history.note("fault", name="valkey killed")
    assert [(line["what"], line["name"]) for line in lines(path)] == [("fault", "valkey killed")]


async def test_writers_of_one_file_mix_no_lines(path: Path) -> None:
    histories = [History(path) for _ in range(4)]

    def write(history: History) -> None:
        for number in range(500):
            history.note("mark", number=number, text="x" * 3000)

    await asyncio.gather(*(asyncio.to_thread(write, history) for history in histories))
    assert len(lines(path)) == 2000


KEYS = Keyring({"k1": b"x" * 32})
PASS = sign_pass(KEYS, Pass("arena", "fan-1", "jti-1", 3, 0, 17, 6, 1_700_000_000, 1_700_000_600))


def test_a_pass_names_its_holder() -> None:
    assert fan_of(PASS) == {"fan": "fan-1"}


def test_a_users_token_names_the_user() -> None:
    assert fan_of(jwt_by_secret("alice")) == {"user": "alice"}


@pytest.mark.parametrize("strange", ["", "a.b", "a.b.c", "ORD-1.k1.mac", "a.W10.c", "a.eyJzdWIiOjF9.c", "\udcff.é.ü"])
def test_any_other_text_names_nobody(strange: str) -> None:
    assert fan_of(strange) == {}
    assert isinstance(claims(strange), dict)


def test_a_body_that_is_no_document_says_nothing() -> None:
    assert document(b"<html>") == {}
    assert document(b"\xff") == {}


DOCUMENTS = Path("features/pages/openapi")
MONEY_OR_STOCK = re.compile(
    r"/admin/orders/(\{reference\}|events/\{event_id\}/refund)|/admin/inventory/.*release|/gate/release"
)


def changing_operations(document: str) -> Iterator[tuple[str, str]]:
    """Method and path of what changes something when it succeeds."""
    for path, operations in json.loads((DOCUMENTS / f"{document}.json").read_text())["paths"].items():
        for method, operation in operations.items():
            successful = any(status.startswith("2") for status in operation.get("responses", {}))
            if method in ("post", "put", "patch", "delete") and successful:
                yield method.upper(), path


def published() -> set[tuple[str, str]]:
    operators = {each for each in changing_operations("operators") if MONEY_OR_STOCK.match(each[1])}
    return set(changing_operations("fans")) | operators


def missing(operations: set[tuple[str, str]]) -> set[tuple[str, str]]:
    return operations - set(RECORDED) - set(NOTHING_ACKNOWLEDGED)


def test_every_operation_that_changes_something_is_recorded_or_acknowledges_nothing() -> None:
    assert len(published()) > 25
    assert not missing(published())
    assert not set(RECORDED) & set(NOTHING_ACKNOWLEDGED)


def test_every_row_of_the_table_is_an_operation() -> None:
    every = {
        (method.upper(), path)
        for document in ("fans", "operators")
        for path, operations in json.loads((DOCUMENTS / f"{document}.json").read_text())["paths"].items()
        for method in operations
    }
    assert not (set(RECORDED) | set(NOTHING_ACKNOWLEDGED)) - every


@pytest.mark.parametrize(
    "row", [("POST", "/orders"), ("DELETE", "/events/{event_id}/queue"), ("POST", "/gate/release")]
)
def test_an_operation_missing_in_the_table_is_found(row: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(RECORDED, row)
    assert missing(published()) == {row}
