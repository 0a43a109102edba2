"""All three transports send the same valid SSE, which an independent client reads; a cut stream resumes."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import orjson
import pytest
from httpx_sse import ServerSentEvent, aconnect_sse

from services.notifier.broadcast import frames
from services.notifier.metrics import ENDED, OPENED
from services.notifier.streams.connection import Message
from services.notifier.streams.open_stream import TRANSPORTS
from tests.notifier.client import UPDATES, all_have_head, raw_request
from tests.notifier.conftest import Notifier, Start
from tests.notifier.frames import line_frame, stock_frame
from tests.notifier.page import Page
from tests.notifier.tokens import queue_token
from tests.support.wait import wait_until

pytestmark = pytest.mark.parametrize("transport", TRANSPORTS)
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
    async with httpx.AsyncClient(base_url=address, headers={"authorization": f"Bearer {queue_token(1)}"}) as client:
        yield client


async def test_a_stream_follows_the_sse_grammar(notifier: Notifier):
    client = await notifier.connect()
    await notifier.publish(line_frame(11, 6))
    await wait_until(lambda: client.head_seq == 6 and "event: beat" in client.body.decode())
    await notifier.drain()
    await wait_until(lambda: client.closed)
    text = client.body.decode("utf-8")
    assert GRAMMAR.fullmatch(text)
    assert text.startswith("retry: ")
    assert all(FIELDS.fullmatch(row) for row in text.split("\n"))
    assert client.complete, "the last chunk was sent"


async def test_an_independent_client_reads_the_stream_and_resumes(notifier: Notifier, client: httpx.AsyncClient):
    async def next_named(events: AsyncIterator[ServerSentEvent], name: str) -> ServerSentEvent:
        async for event in events:
            if event.event == name:
                return event
        raise AssertionError(f"the stream ended without {name}")

    await notifier.publish_initial()
    async with aconnect_sse(client, "GET", UPDATES) as source:
        events = source.aiter_sse()
        first = await anext(events)
        assert 2_000 <= (first.retry or 0) <= 4_000
        assert (await next_named(events, "line")).json()["head_seq"] == 5
        sections = await next_named(events, "sections")
        assert sections.json()["sections"][0]["available_seats"] == 100
        await notifier.publish(stock_frame(11, A=99, B=200, GA1=300))
        last = await next_named(events, "sections")
        assert last.json()["sections"][0]["available_seats"] == 99
        await events.aclose()
    async with aconnect_sse(client, "GET", UPDATES, headers={"last-event-id": last.id}) as source:
        events = source.aiter_sse()
        await anext(events)
        await notifier.publish(line_frame(12, 7))
        assert (await next_named(events, "line")).json()["head_seq"] == 7, "no event is sent again"
        await events.aclose()


async def test_only_the_requested_sections_are_sent(notifier: Notifier):
    client = await notifier.connect("?sections=A,GA1")
    assert [section["section_id"] for section in client.last("sections")["sections"]] == ["A", "GA1"]
    await notifier.publish(stock_frame(11, A=100, B=7, GA1=300))
    await notifier.publish(stock_frame(12, A=100, B=7, GA1=8))
    await wait_until(lambda: Page().apply(client.events).available == {"A": 100, "GA1": 8})
    assert len(client.all("sections")) == 2
    assert OPENED.labels(notifier.state.settings.transport)._value.get() >= 1


async def test_a_head_request_opens_no_stream(notifier: Notifier, client: httpx.AsyncClient):
    answer = await client.head(UPDATES)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert (answer.headers["x-accel-buffering"], answer.content) == ("no", b"")
    assert len(notifier.state.hub) == 0


@pytest.mark.parametrize("cut_at", [0, 1, 60, 250])
async def test_a_client_that_leaves_within_a_frame_can_reconnect(notifier: Notifier, cut_at: int):
    other = await notifier.listen(token=queue_token(2))
    reader, writer = await asyncio.open_connection("127.0.0.1", notifier.port)
    writer.write(raw_request(queue_token(1)))
    await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(cut_at)
    writer.transport.abort()
    await wait_until(lambda: len(notifier.state.hub) == 1)
    again = await notifier.listen()
    await notifier.publish(line_frame(11, 6))
    await wait_until(lambda: all_have_head([other, again], 6))
    assert other.all("sections")
    assert again.all("sections")


async def test_a_frame_is_encoded_once_for_all_streams(notifier: Notifier, monkeypatch: pytest.MonkeyPatch):
    clients = [await notifier.connect(token=queue_token(n)) for n in range(10)]
    encoded: list[bytes] = []
    messages: list[bytes] = []
    encode_events, init_message = frames.encode_events, Message.__init__

    def recording_encode(*parts: Any) -> bytes:
        encoded.append(encode_events(*parts))
        return encoded[-1]

    def recording_init(message: Message, data: bytes) -> None:
        messages.append(data)
        init_message(message, data)

    monkeypatch.setattr(frames, "encode_events", recording_encode)
    monkeypatch.setattr(Message, "__init__", recording_init)
    await notifier.publish(line_frame(11, 6))
    await wait_until(lambda: all_have_head(clients, 6))
    assert (len(encoded), messages) == (1, encoded)


async def test_a_stream_ends_at_its_maximum_age_with_a_retry_delay(start: Start, transport: str):
    notifier = await start(transport=transport, stream_max_age_s=0.2, heartbeat_s=0.15)
    ended = ENDED.labels("max_age")._value.get()
    clients = [await notifier.listen(token=queue_token(n)) for n in range(5)]
    await wait_until(lambda: all(client.closed for client in clients))
    assert all(client.complete and len(client.retries) == 2 for client in clients)
    assert ENDED.labels("max_age")._value.get() == ended + 5
    await wait_until(lambda: notifier.state.limiter._open == 0)


async def test_the_maximum_ages_of_streams_are_spread(notifier: Notifier):
    clients = [await notifier.listen(token=queue_token(n)) for n in range(12)]
    now_s, limit_s = asyncio.get_running_loop().time(), notifier.state.settings.stream_max_age_s
    left_s = [connection.ends_s - now_s for connection in notifier.state.hub]
    assert len(left_s) == len(clients)
    assert all(0.5 * limit_s - 5 < each_s <= 1.5 * limit_s for each_s in left_s)
    assert max(left_s) - min(left_s) > 0.1 * limit_s


async def test_an_order_stream_is_the_same_on_every_transport(notifier: Notifier):
    client = await notifier.connect_order()
    assert orjson.loads(orjson.dumps(client.last("order")))["status"] == "pending"
