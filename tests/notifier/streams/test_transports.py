"""All three transports send the same valid SSE, which an independent client reads; a cut stream resumes."""

import asyncio
import re
from typing import Any

import httpx
import pytest
from httpx_sse import aconnect_sse

from services.notifier.metrics import ENDED, OPENED
from services.notifier.topics import frames
from services.notifier.topics.topic import Message
from tests.notifier.client import raw_request
from tests.notifier.conftest import TRANSPORTS, Notifier, Start
from tests.support.wait import wait_until

pytestmark = pytest.mark.parametrize("transport", TRANSPORTS)
# https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
END = r"(?:\r\n|\n|\r)"
COMMENT, FIELD = rf":[^\r\n]*{END}", rf"[^\x00:\r\n]+(?::[^\r\n]*)?{END}"
GRAMMAR = re.compile(rf"(?:(?:{COMMENT}|{FIELD})*{END})*")
FIELDS = re.compile(r"(?m)^(?:event: (?:line|sections|order|beat)|data: \{.*\}|id: \d+\.\d+|retry: \d+|:|)$")


@pytest.fixture
async def notifier(start: Start, transport: str) -> Notifier:
    return await start(transport=transport, heartbeat_s=0.3)


async def test_a_stream_follows_the_sse_grammar(notifier: Notifier, transport: str):
    opened = OPENED.labels(transport)._value.get()
    client = await notifier.join()
    await notifier.publish_number(11)
    await wait_until(lambda: b"event: beat" in client.body and notifier.shows(11, client))
    await notifier.drain()
    await wait_until(lambda: client.closed)
    text = client.body.decode("utf-8")
    assert GRAMMAR.fullmatch(text)
    assert text.startswith("retry: ")
    assert all(FIELDS.fullmatch(row) for row in text.split("\n"))
    assert client.complete, "the last chunk was sent"
    assert OPENED.labels(transport)._value.get() == opened + 1


async def test_an_independent_client_reads_the_stream_and_resumes(notifier: Notifier):
    url, name = f"http://127.0.0.1:{notifier.port}{notifier.path}", notifier.names[0]
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {notifier.token()}"}) as client:
        async with aconnect_sse(client, "GET", url) as source:
            events = (event async for event in source.aiter_sse() if event.event != "beat")
            assert 2_000 <= ((await anext(events)).retry or 0) <= 4_000
            assert [(await anext(events)).event for _ in notifier.names] == notifier.names
            await notifier.publish_number(11)
            last = await anext(events)
            assert (last.event, "11" in last.data) == (name, True)
            await events.aclose()
        async with aconnect_sse(client, "GET", url, headers={"last-event-id": last.id}) as source:
            events = (event async for event in source.aiter_sse() if event.event != "beat")
            await anext(events)
            await notifier.publish_number(12)
            again = await anext(events)
            assert (again.event, "12" in again.data) == (name, True), "no event is sent again"
            await events.aclose()


@pytest.mark.parametrize("cut_at", [0, 60, 100])
async def test_a_client_that_leaves_within_a_frame_can_reconnect(notifier: Notifier, cut_at: int):
    other = await notifier.join(2)
    reader, writer = await asyncio.open_connection("127.0.0.1", notifier.port)
    writer.write(raw_request(notifier.token(), notifier.path))
    await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(cut_at)
    writer.transport.abort()
    await wait_until(lambda: len(notifier.state.hub) == 1)
    again = await notifier.join()
    await notifier.publish_number(11)
    await wait_until(lambda: notifier.shows(11, other, again))


async def test_a_frame_is_encoded_once_for_all_streams(notifier: Notifier, monkeypatch: pytest.MonkeyPatch):
    clients = [await notifier.join(n) for n in range(10)]
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
    await notifier.publish_number(11)
    await wait_until(lambda: notifier.shows(11, *clients))
    assert (len(encoded), messages) == (1, encoded)


async def test_a_stream_ends_at_its_maximum_age_with_a_retry_delay(start: Start, transport: str):
    notifier = await start(transport=transport, stream_max_age_s=0.2, heartbeat_s=0.15)
    ended = ENDED.labels("max_age")._value.get()
    clients = [await notifier.open(notifier.path, token=notifier.token(n)) for n in range(5)]
    await wait_until(lambda: all(client.closed for client in clients))
    assert all(client.complete and len(client.retries) == 2 for client in clients)
    assert ENDED.labels("max_age")._value.get() == ended + 5
    await wait_until(lambda: notifier.state.limiter._open == 0)
