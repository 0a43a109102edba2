"""All listeners of a process have the right date, and an end or a start that fails leaves nothing behind."""

import asyncio
import logging
import socket
from contextlib import closing

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from onsale.errors import OperatorError
from onsale.local.ports import HOST, free_port
from onsale.server import command, serve
from onsale.server.listener import Listener
from shared.web.answers import Answer
from tests.support.wait import wait_until


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    await Answer(200, b"{}")(scope, receive, send)


async def test_the_service_of_a_feature_that_is_switched_off_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONSALE_FEATURES_OFF", "console")
    assert list(serve.create(("console", "gateway"))) == ["gateway"]
    with pytest.raises(OperatorError, match="ONSALE_FEATURES_OFF leaves out console"):
        await command._serve(["console"])


async def test_every_listener_sends_the_date_and_goes_on_doing_so(monkeypatch: pytest.MonkeyPatch) -> None:
    dates: list[str] = []

    def next_date(*, usegmt: bool) -> str:
        dates.append(f"date {len(dates)}")
        return dates[-1]

    monkeypatch.setattr(serve, "formatdate", next_date)
    monkeypatch.setattr(serve, "DATE_S", 0.05)
    listeners = [Listener(hello, HOST, free_port()) for _ in range(2)]
    async with serve.running({}, listeners, {}), httpx.AsyncClient(trust_env=False) as client:
        for at_least in (1, 3):
            await wait_until(lambda: len(dates) >= at_least)  # noqa: B023 - it is awaited here
            for listener in listeners:
                answer = await client.get(f"http://{HOST}:{listener.port}/")
                assert dates.index(answer.headers["date"]) >= at_least - 1
    ended = len(dates)
    await asyncio.sleep(0.1)
    assert len(dates) == ended, "the clock has ended"


async def test_a_request_that_outlasts_the_grace_is_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    began, cancelled = asyncio.Event(), asyncio.Event()

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    listener = Listener(endless, HOST, free_port(), grace_s=0.2)
    with caplog.at_level(logging.WARNING):
        async with asyncio.timeout(5), serve.running({}, [listener], {}):
            reader, writer = await asyncio.open_connection(HOST, listener.port)
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            await began.wait()
        await asyncio.wait_for(cancelled.wait(), 1)
    assert "requests.cancelled" in caplog.messages
    await reader.read()
    writer.close()
    await writer.wait_closed()


async def test_a_start_that_is_broken_off_serves_nobody() -> None:
    listeners = [Listener(hello, HOST, free_port()) for _ in range(2)]
    first, second = (listener.bind() for listener in listeners)
    second.close()  # so that it cannot listen
    with closing(serve.Server()) as server, pytest.raises(OSError, match="Bad file descriptor"):
        async with server.answering([(listeners[0], first), (listeners[1], second)]):
            pass
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, listeners[0].port))
