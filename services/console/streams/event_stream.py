"""Serves one stream: a snapshot, then what is published, and a comment every few seconds, until either side ends it."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from services.console.streams.messages import HEARTBEAT
from services.console.streams.watchers import Watcher, Watchers
from shared.concurrency.tasks import stop
from shared.web.request import request_of

HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
)


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
