"""A stream held by ASGI alone, on any server whose `send` waits only while the reader does not read: a task that waits
for the reader to leave, and a `send` that the hub drives by hand.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from services.notifier.broadcast.hub import Hub
from services.notifier.streams.connection import Connection, Message, body, written
from services.notifier.streams.handshake import StreamHandshake, head
from shared.web.problems import Problem

NOTHING = body(b"")
Send = Callable[[Any], Coroutine[Any, Any, None]]


class Portable(Connection):
    """Writes by `send`."""

    __slots__ = ("_catching_up", "_hang_up", "_hub", "_left", "_send")
    way = "asgi"

    def __init__(self, hub: Hub, send: Send, hang_up: Callable[[], object], left: Callable[[], object]) -> None:
        super().__init__(self._gone)
        self._hub, self._send, self._hang_up, self._left = hub, send, hang_up, left
        self._catching_up: asyncio.Task[None] | None = None

    def write(self, message: Message) -> bool:
        if written(self._send, message.asgi):
            return True
        if self._catching_up is None:
            self._catching_up = asyncio.create_task(self._catch_up())
        return False

    async def _catch_up(self) -> None:
        """Waits until the reader reads again: the only task a stream ever has."""
        await self._send(NOTHING)
        self._catching_up = None
        self._hub.reads_again(self)

    def end(self, data: bytes) -> bool:
        return written(self._send, body(data, more=False))

    def hang_up(self) -> None:
        self._hang_up()

    def _gone(self) -> None:
        if self._catching_up is not None:
            self._catching_up.cancel()
        self._left()


async def hold(opening: StreamHandshake) -> bool:
    """Until either side ends it; answers that nothing is left of it then."""
    hub = opening.hub
    connection = Portable(hub, opening.send, opening.hang_up(), opening.left)
    await opening.send(head())
    opening.listen(connection)
    try:
        while (await opening.receive())["type"] != "http.disconnect":
            pass
    except (asyncio.CancelledError, Problem):  # the server stops, or the request's body never does
        hub.close(connection)
    finally:
        hub.leave(connection)
    return False
