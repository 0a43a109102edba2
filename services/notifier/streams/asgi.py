"""The ASGI transport: serves a stream on any server whose `send` waits only while the reader does not read.

Each stream costs one task that waits for the reader to leave; the hub drives `send` by hand, without a task.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from services.notifier.streams.handshake import StreamHandshake, head_message
from services.notifier.topics.hub import Hub
from services.notifier.topics.topic import Connection, Message, body_message, try_send
from shared.errors.problems import Problem

EMPTY = body_message(b"")
Send = Callable[[Any], Coroutine[Any, Any, None]]


class AsgiStream(Connection):
    """Writes by `send`."""

    __slots__ = ("_abort", "_hub", "_on_end", "_resume_task", "_send")
    transport_name = "asgi"

    def __init__(self, hub: Hub, send: Send, abort: Callable[[], object], on_end: Callable[[], object]) -> None:
        super().__init__(self._cleanup)
        self._hub, self._send, self._abort, self._on_end = hub, send, abort, on_end
        self._resume_task: asyncio.Task[None] | None = None

    def write(self, message: Message) -> bool:
        if try_send(self._send, message.asgi):
            return True
        if self._resume_task is None:
            self._resume_task = asyncio.create_task(self._wait_until_read())
        return False

    async def _wait_until_read(self) -> None:
        """Waits until the reader reads again; the only task that a stream ever starts."""
        await self._send(EMPTY)
        self._resume_task = None
        self._hub.resume(self)

    def end(self, data: bytes) -> bool:
        return try_send(self._send, body_message(data, more=False))

    def abort(self) -> None:
        self._abort()

    def _cleanup(self) -> None:
        if self._resume_task is not None:
            self._resume_task.cancel()
        self._on_end()


async def serve(handshake: StreamHandshake) -> bool:
    """Serves the stream until either side ends it. Returns `False`: the stream does not outlive its request."""
    hub = handshake.hub
    connection = AsgiStream(hub, handshake.send, handshake.aborter(), handshake.on_end)
    await handshake.send(head_message())
    handshake.start(connection)
    try:
        while (await handshake.receive())["type"] != "http.disconnect":
            pass
    except (asyncio.CancelledError, Problem):  # the server stops, or the request's body never ends
        hub.close(connection)
    finally:
        hub.remove(connection)
    return False
