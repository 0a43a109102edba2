"""Streams of server-sent events: each message is encoded once for everybody who watches an event. A stream has a short
queue of messages; whoever leaves it unread is cut and reconnects.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import orjson
from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from features.console.metrics import CUT, STREAMS
from features.console.schemas import ActiveAlarm, ApprovalView, Change, Process, Snapshot, Vitals
from shared.concurrency.background import stop
from shared.web.request import request_of

RETRY_MS = 1_000
HEARTBEAT = b": beat\n\n"
HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
)


def snapshot(found: Snapshot) -> bytes:
    """The first message of every stream, with the delay after which a browser reconnects."""
    return b"retry: %d\n" % RETRY_MS + _message(b"snapshot", found.model_dump_json().encode())


def vitals(found: Vitals) -> bytes:
    return b"id: %d\n" % found.at_ms + _message(b"vitals", found.model_dump_json().encode())


def alarms(found: Sequence[ActiveAlarm]) -> bytes:
    return _message(b"alarms", _list(found))


def processes(found: Sequence[Process]) -> bytes:
    return _message(b"processes", _list(found))


def change(found: Change) -> bytes:
    return _message(b"change", found.model_dump_json().encode())


def approvals(found: Sequence[ApprovalView]) -> bytes:
    return _message(b"approvals", _list(found))


def _list(found: Sequence[BaseModel]) -> bytes:
    return orjson.dumps([each.model_dump(mode="json") for each in found])


def _message(name: bytes, data: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name, data)


class Watcher:
    """One stream: `on_cut` closes its connection at once."""

    def __init__(self, messages_max: int) -> None:
        self._messages: deque[bytes] = deque()
        self._messages_max = messages_max
        self._wake = asyncio.Event()
        self.ended = False
        self.on_cut: Callable[[], object] = lambda: None

    def add(self, message: bytes) -> None:
        """Queues a message, or cuts the stream if too many are unread."""
        if self.ended:
            return
        if len(self._messages) >= self._messages_max:
            CUT.inc()
            self.end()
            self.on_cut()
            return
        self._messages.append(message)
        self._wake.set()

    def end(self) -> None:
        """No more messages."""
        self.ended = True
        self._wake.set()

    async def next(self, *, within_s: float) -> bytes:
        """All queued messages, as soon as there is one; empty when time is up or the stream has ended."""
        try:
            async with asyncio.timeout(max(0.0, within_s)):
                await self._wake.wait()
        except TimeoutError:
            return b""
        self._wake.clear()
        queued = b"".join(self._messages)
        self._messages.clear()
        return queued


class Watchers:
    """The open streams of one event."""

    def __init__(self, messages_max: int) -> None:
        self._messages_max = messages_max
        self._open: set[Watcher] = set()

    @property
    def count(self) -> int:
        return len(self._open)

    def add(self) -> Watcher:
        watcher = Watcher(self._messages_max)
        self._open.add(watcher)
        STREAMS.inc()
        return watcher

    def remove(self, watcher: Watcher) -> None:
        self._open.discard(watcher)
        STREAMS.dec()

    def publish(self, message: bytes) -> None:
        """The same bytes to everybody."""
        for watcher in list(self._open):
            watcher.add(message)

    def end(self) -> None:
        for watcher in self._open:
            watcher.end()


class EventStream(Response):
    """It ends when the session does, when the process stops, and when the reader leaves or does not read."""

    media_type = "text/event-stream"

    def __init__(self, watchers: Watchers, first: Callable[[], bytes], *, heartbeat_s: float, ends_s: float) -> None:
        super().__init__()
        self._watchers, self._first = watchers, first
        self._heartbeat_s, self._ends_s = heartbeat_s, ends_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_of(scope).quiet = True
        watcher = self._watchers.add()
        watcher.on_cut = _aborter(scope)
        leaves = asyncio.create_task(_left(receive))
        leaves.add_done_callback(lambda _: watcher.end())
        try:
            await send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})
            await _send(send, self._first())
            await self._serve(watcher, send)
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._watchers.remove(watcher)
            await stop([leaves])

    async def _serve(self, watcher: Watcher, send: Send) -> None:
        clock = asyncio.get_running_loop().time
        beat_s = clock() + self._heartbeat_s
        while not watcher.ended and (left_s := self._ends_s - time.time()) > 0:
            queued = await watcher.next(within_s=min(beat_s - clock(), left_s))
            if clock() >= beat_s:
                queued, beat_s = queued + HEARTBEAT, clock() + self._heartbeat_s
            if queued:
                await _send(send, queued)


async def _send(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _aborter(scope: Scope) -> Callable[[], object]:
    """Closes the connection with its unread messages: the server's transport beneath all middleware, or the task."""
    transport: Any = getattr(getattr(request_of(scope).receive, "__self__", None), "transport", None)
    if hasattr(transport, "abort"):
        abort: Callable[[], object] = transport.abort
        return abort
    task = asyncio.current_task()
    assert task is not None
    return task.cancel
