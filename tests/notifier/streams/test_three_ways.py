"""Every transport sends the same: valid SSE, to an independent client, in one piece or cut anywhere."""

import asyncio
import re
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import httpx
import orjson
import pytest
from httpx_sse import ServerSentEvent, aconnect_sse

from services.notifier.broadcast import frames
from services.notifier.metrics import ENDED, OPENED
from services.notifier.streams.connection import Message
from services.notifier.streams.open_stream import TRANSPORTS
from tests.notifier.client import SseClient
from tests.notifier.conftest import EVENT, Notifier, Start, fan, line, stock
from tests.notifier.page import Page
from tests.support.wait import wait_until

pytestmark = pytest.mark.parametrize("transport", TRANSPORTS)
PATH = f"/events/{EVENT}/sections/updates"
# https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
END = r"(?:\r\n|\n|\r)"
COMMENT, FIELD = rf":[^\r\n]*{END}", rf"[^\x00:\r\n]+(?::[^\r\n]*)?{END}"
GRAMMAR = re.compile(rf"(?:(?:{COMMENT}|{FIELD})*{END})*")
FIELDS = re.compile(r"(?m)^(?:event: (?:line|sections|notice|beat)|data: \{.*\}|id: \d+\.\d+|retry: \d+|:|)$")


@pytest.fixture
async def notifier(start: Start, transport: str) -> Notifier:
    return await start(transport=transport, orders_transport=transport, heartbeat_s=0.3)


@pytest.fixture
async def client(notifier: Notifier) -> AsyncIterator[httpx.AsyncClient]:
    address = f"http://127.0.0.1:{notifier.port}"
    async with httpx.AsyncClient(base_url=address, headers={"authorization": f"Bearer {fan(1)}"}) as client:
        yield client


async def test_the_bytes_follow_the_grammar(notifier: Notifier):
    client = await notifier.listen()
    await wait_until(lambda: client.last("sections"))
    await notifier.show(line(11, 6))
    await wait_until(lambda: client.last("line")["head_seq"] == 6 and "event: beat" in client.body.decode())
    await notifier.drain()
    await wait_until(lambda: client.closed)
    text = client.body.decode("utf-8")
    assert GRAMMAR.fullmatch(text)
    assert text.startswith("retry: ")
    assert all(FIELDS.fullmatch(row) for row in text.split("\n"))
    assert client.complete, "the last chunk came too"


async def test_an_independent_client_understands_it_and_resumes(notifier: Notifier, client: httpx.AsyncClient):
    async def next_named(events: AsyncIterator[ServerSentEvent], name: str) -> ServerSentEvent:
        async for event in events:
            if event.event == name:
                return event
        raise AssertionError(f"it ended without {name}")

    await notifier.begin()
    async with aconnect_sse(client, "GET", PATH) as source:
        events = source.aiter_sse()
        first = await anext(events)
        assert 2_000 <= (first.retry or 0) <= 4_000
        assert (await next_named(events, "line")).json()["head_seq"] == 5
        sections = await next_named(events, "sections")
        assert sections.json()["sections"][0]["available_seats"] == 100
        await notifier.show(stock(11, A=99, B=200, GA1=300))
        last = await next_named(events, "sections")
        assert last.json()["sections"][0]["available_seats"] == 99
        await events.aclose()
    async with aconnect_sse(client, "GET", PATH, headers={"last-event-id": last.id}) as source:
        events = source.aiter_sse()
        await anext(events)
        await notifier.show(line(12, 7))
        assert (await next_named(events, "line")).json()["head_seq"] == 7, "nothing is text twice"
        await events.aclose()


async def test_only_the_requested_sections_are_sent(notifier: Notifier):
    client = await notifier.listen("?sections=A,GA1")
    await wait_until(lambda: client.last("sections"))
    assert [section["section_id"] for section in client.last("sections")["sections"]] == ["A", "GA1"]
    await notifier.show(stock(11, A=100, B=7, GA1=300))
    await notifier.show(stock(12, A=100, B=7, GA1=8))
    await wait_until(lambda: Page().apply(client.events).available == {"A": 100, "GA1": 8})
    assert len(client.all("sections")) == 2
    assert OPENED.labels(notifier.state.settings.transport)._value.get() >= 1


async def test_a_head_request_is_answered(notifier: Notifier, client: httpx.AsyncClient):
    answer = await client.head(PATH)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert (answer.headers["x-accel-buffering"], answer.content) == ("no", b"")
    assert len(notifier.state.hub) == 0


@pytest.mark.parametrize("cut_at", [0, 1, 60, 250])
async def test_a_listener_who_leaves_in_the_middle_of_a_frame_resumes_before_it(notifier: Notifier, cut_at: int):
    other = await notifier.listen(token=fan(2))
    reader, writer = await asyncio.open_connection("127.0.0.1", notifier.port)
    writer.write(f"GET {PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {fan(1)}\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(cut_at)
    writer.transport.abort()
    await wait_until(lambda: len(notifier.state.hub) == 1)
    again = await notifier.listen()
    await notifier.show(line(11, 6))
    for client in (other, again):
        await wait_until(partial(heard_line, client, 6))
        assert client.all("sections")


def heard_line(client: SseClient, head_seq: int) -> bool:
    text = client.last("line")
    return text is not None and text["head_seq"] == head_seq


async def test_a_frame_is_encoded_once_for_all(notifier: Notifier, monkeypatch: pytest.MonkeyPatch):
    clients = [await notifier.listen(token=fan(n)) for n in range(10)]
    await wait_until(lambda: all(client.last("sections") for client in clients))
    composed: list[bytes] = []
    made: list[bytes] = []
    encode_events, make = frames.encode_events, Message.__init__

    def counted(*parts: Any) -> bytes:
        composed.append(encode_events(*parts))
        return composed[-1]

    def counted_too(message: Message, data: bytes) -> None:
        made.append(data)
        make(message, data)

    monkeypatch.setattr(frames, "encode_events", counted)
    monkeypatch.setattr(Message, "__init__", counted_too)
    await notifier.show(line(11, 6))
    await wait_until(lambda: all(heard_line(client, 6) for client in clients))
    assert (len(composed), made) == (1, composed)


async def test_a_stream_ends_at_some_age_and_says_when_to_come_back(start: Start, transport: str):
    notifier = await start(transport=transport, stream_max_age_s=0.2, heartbeat_s=0.15)
    ended = ENDED.labels("max_age")._value.get()
    clients = [await notifier.listen(token=fan(n)) for n in range(5)]
    await wait_until(lambda: all(client.closed for client in clients))
    assert all(client.complete and len(client.retries) == 2 for client in clients)
    assert ENDED.labels("max_age")._value.get() == ended + 5
    await wait_until(lambda: notifier.state.limiter._open == 0)


async def test_the_ages_differ_by_half(notifier: Notifier):
    clients = [await notifier.listen(token=fan(n)) for n in range(12)]
    now_s, limit_s = asyncio.get_running_loop().time(), notifier.state.settings.stream_max_age_s
    left_s = [connection.ends_s - now_s for connection in notifier.state.hub]
    assert len(left_s) == len(clients)
    assert all(0.5 * limit_s - 5 < some_s <= 1.5 * limit_s for some_s in left_s)
    assert max(left_s) - min(left_s) > 0.1 * limit_s


async def test_an_order_stream_is_the_same_on_every_transport(notifier: Notifier):
    client = await notifier.listen_order()
    await wait_until(lambda: client.last("order"))
    assert orjson.loads(orjson.dumps(client.last("order")))["status"] == "pending"
