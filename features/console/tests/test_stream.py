"""A stream ends with its session and with the process; who does not read is cut; a new one begins with a snapshot."""

import asyncio
import time
from typing import Any

import httpx
from fastapi import FastAPI

from features.console.schemas import STREAM_PATH
from features.console.streams import EventStream, Watchers
from features.console.tests.admin import EVENT
from features.console.tests.conftest import ADMIN_KEYS, KEYS, Console, Start, next_of
from onsale.server_sent_events import messages
from shared.security.auth import AdminKeys, OperatorSession, sign_session
from shared.web.app import drain
from shared.web.request import REQUEST_KEY, Request
from tests.support.wait import wait_until


async def test_a_comment_is_sent_every_few_seconds(start: Start) -> None:
    async with (
        start(heartbeat_s=0.3) as console,
        console.client() as client,
        client.stream("GET", STREAM_PATH.format(event_id=EVENT)) as response,
    ):
        lines = response.aiter_lines()
        for _ in range(3):
            while not (await anext(lines)).startswith(":"):
                pass


async def test_a_stream_ends_with_its_session(console: Console) -> None:
    session = AdminKeys(ADMIN_KEYS).session(KEYS["viewer"], now_s=time.time())
    short = OperatorSession(session.operator, session.fingerprint, int(time.time()) + 4)
    text = sign_session(console.app.state.settings.service_keys, short)
    headers = {"authorization": f"Bearer {text}"}
    async with (
        httpx.AsyncClient(base_url=console.url, headers=headers, timeout=10) as client,
        client.stream("GET", STREAM_PATH.format(event_id=EVENT)) as response,
    ):
        names = [message.event async for message in messages(response.aiter_lines())]
        assert names[0] == "snapshot"
        assert time.time() >= short.expires_at_s
        assert (await client.get("/console/session")).status_code == 401


async def test_streams_end_when_the_process_stops(console: Console) -> None:
    async with console.stream() as stream:
        await next_of(stream, "snapshot")
        await drain(console.app)
        async for _ in stream:
            pass
    await wait_until(lambda: console.app.state.deps.gathering.known(EVENT).watchers.count == 0)


async def test_a_stream_that_reconnects_begins_with_a_snapshot(console: Console) -> None:
    for _ in range(2):
        async with console.stream() as stream:
            name, snapshot = await anext(stream)
            assert (name, snapshot["vitals"]["event_id"]) == ("snapshot", EVENT)


async def test_a_reader_that_does_not_read_is_cut() -> None:
    """Its connection is closed, and the others get everything."""
    watchers, blocked, sent = Watchers(4), asyncio.Event(), list[bytes]()

    async def receive() -> dict[str, str]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: dict[str, object]) -> None:
        if message["type"] == "http.response.body":
            await blocked.wait()

    async def reads(message: dict[str, object]) -> None:
        sent.append(message.get("body", b""))  # type: ignore[arg-type]

    def serve(how: object) -> asyncio.Task[None]:
        stream = EventStream(watchers, lambda: b"first", heartbeat_s=60, ends_s=time.time() + 60)
        scope: dict[str, Any] = {"type": "http", "headers": []}
        request = Request(FastAPI(), scope, receive, body_max_bytes=0)
        return asyncio.create_task(stream({**scope, REQUEST_KEY: request}, receive, how))  # type: ignore[arg-type]

    slow, quick = serve(send), serve(reads)
    await wait_until(lambda: watchers.count == 2)
    for number in range(5):
        watchers.publish(b"%d" % number)
        await asyncio.sleep(0.01)
    await asyncio.wait({slow}, timeout=5)
    assert slow.cancelled()
    assert watchers.count == 1
    watchers.end()
    await quick
    assert b"".join(sent) == b"first01234"


async def test_the_connection_of_a_reader_that_does_not_read_is_closed(start: Start) -> None:
    """On a real socket whose buffers are full."""
    async with start(watcher_messages_max=4) as console:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(console.url.rpartition(":")[2]), limit=1024)
        path = STREAM_PATH.format(event_id=EVENT)
        writer.write(f"GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEYS['viewer']}\r\n\r\n".encode())
        await writer.drain()
        gathering = console.app.state.deps.gathering
        await wait_until(lambda: (one := gathering.known(EVENT)) and one.watchers.count)
        watchers = gathering.known(EVENT).watchers

        async def is_cut() -> bool:
            watchers.publish(b": " + bytes(1_000_000) + b"\n\n")
            return watchers.count == 0

        await wait_until(is_cut, timeout_s=20)
        writer.close()
        assert reader.at_eof() is False
