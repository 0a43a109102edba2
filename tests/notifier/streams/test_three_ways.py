"""However a stream is held, it says the same: by the grammar, to an independent client, whole or cut anywhere."""

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
from services.notifier.streams.open_stream import WAYS
from tests.notifier.conftest import EVENT, Notifier, Start, fan, line, stock
from tests.notifier.ear import Ear
from tests.notifier.page import Page
from tests.support.wait import wait_until

pytestmark = pytest.mark.parametrize("transport", WAYS)
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
    ear = await notifier.listen()
    await wait_until(lambda: ear.last("sections"))
    await notifier.show(line(11, 6))
    await wait_until(lambda: ear.last("line")["head_seq"] == 6 and "event: beat" in ear.body.decode())
    await notifier.drain()
    await wait_until(lambda: ear.closed)
    said = ear.body.decode("utf-8")
    assert GRAMMAR.fullmatch(said)
    assert said.startswith("retry: ")
    assert all(FIELDS.fullmatch(row) for row in said.split("\n"))
    assert ear.complete, "the last chunk came too"


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
        assert (await next_named(events, "line")).json()["head_seq"] == 7, "nothing is said twice"
        await events.aclose()


async def test_only_the_asked_sections_are_told(notifier: Notifier):
    ear = await notifier.listen("?sections=A,GA1")
    await wait_until(lambda: ear.last("sections"))
    assert [section["section_id"] for section in ear.last("sections")["sections"]] == ["A", "GA1"]
    await notifier.show(stock(11, A=100, B=7, GA1=300))
    await notifier.show(stock(12, A=100, B=7, GA1=8))
    await wait_until(lambda: Page().hear(ear.heard).available == {"A": 100, "GA1": 8})
    assert len(ear.all("sections")) == 2
    assert OPENED.labels(notifier.state.settings.transport)._value.get() >= 1


async def test_its_head_can_be_asked_for(notifier: Notifier, client: httpx.AsyncClient):
    answer = await client.head(PATH)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert (answer.headers["x-accel-buffering"], answer.content) == ("no", b"")
    assert len(notifier.state.hub) == 0


@pytest.mark.parametrize("cut_at", [0, 1, 60, 250])
async def test_who_leaves_in_the_middle_of_a_frame_starts_again_whole(notifier: Notifier, cut_at: int):
    other = await notifier.listen(token=fan(2))
    reader, writer = await asyncio.open_connection("127.0.0.1", notifier.port)
    writer.write(f"GET {PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {fan(1)}\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(cut_at)
    writer.transport.abort()
    await wait_until(lambda: len(notifier.state.hub) == 1)
    again = await notifier.listen()
    await notifier.show(line(11, 6))
    for ear in (other, again):
        await wait_until(partial(heard_line, ear, 6))
        assert ear.all("sections")


def heard_line(ear: Ear, head_seq: int) -> bool:
    said = ear.last("line")
    return said is not None and said["head_seq"] == head_seq


async def test_a_frame_is_encoded_once_for_all(notifier: Notifier, monkeypatch: pytest.MonkeyPatch):
    ears = [await notifier.listen(token=fan(n)) for n in range(10)]
    await wait_until(lambda: all(ear.last("sections") for ear in ears))
    composed: list[bytes] = []
    made: list[bytes] = []
    compose, make = frames.compose, Message.__init__

    def counted(*said: Any) -> bytes:
        composed.append(compose(*said))
        return composed[-1]

    def counted_too(message: Message, data: bytes) -> None:
        made.append(data)
        make(message, data)

    monkeypatch.setattr(frames, "compose", counted)
    monkeypatch.setattr(Message, "__init__", counted_too)
    await notifier.show(line(11, 6))
    await wait_until(lambda: all(heard_line(ear, 6) for ear in ears))
    assert (len(composed), made) == (1, composed)


async def test_a_stream_ends_at_some_age_and_says_when_to_come_back(start: Start, transport: str):
    notifier = await start(transport=transport, stream_max_age_s=0.2, heartbeat_s=0.15)
    ended = ENDED.labels("max_age")._value.get()
    ears = [await notifier.listen(token=fan(n)) for n in range(5)]
    await wait_until(lambda: all(ear.closed for ear in ears))
    assert all(ear.complete and len(ear.retries) == 2 for ear in ears)
    assert ENDED.labels("max_age")._value.get() == ended + 5
    await wait_until(lambda: notifier.state.turnstile._open == 0)


async def test_the_ages_differ_by_half(notifier: Notifier):
    ears = [await notifier.listen(token=fan(n)) for n in range(12)]
    now_s, limit_s = asyncio.get_running_loop().time(), notifier.state.settings.stream_max_age_s
    left_s = [connection.ends_s - now_s for connection in notifier.state.hub]
    assert len(left_s) == len(ears)
    assert all(0.5 * limit_s - 5 < some_s <= 1.5 * limit_s for some_s in left_s)
    assert max(left_s) - min(left_s) > 0.1 * limit_s


async def test_an_order_is_told_the_same_way(notifier: Notifier):
    ear = await notifier.listen_order()
    await wait_until(lambda: ear.last("order"))
    assert orjson.loads(orjson.dumps(ear.last("order")))["status"] == "pending"
