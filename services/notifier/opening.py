"""A stream that is about to begin: all that a way of holding it needs to know."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from starlette.types import Receive, Scope

from services.notifier.bounds import bound
from services.notifier.connection import Connection
from services.notifier.hub import Hub
from services.notifier.topic import Topic
from shared.service import RECEIVE_KEY

HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
    (b"connection", b"close"),
)


def head() -> dict[str, Any]:
    """The head of every stream; layers on its way out add to it."""
    return {"type": "http.response.start", "status": 200, "headers": list(HEADERS)}


@dataclass(frozen=True, slots=True)
class Opening:
    """`left` is to be called once when the stream has ended."""

    hub: Hub
    topic: Topic
    scope: Scope
    receive: Receive
    send: Callable[[Any], Coroutine[Any, Any, None]]
    left: Callable[[], object]

    @property
    def cycle(self) -> Any:
        """The server's own object behind this request, beneath all layers; `None` if it cannot be reached."""
        return getattr(self.scope.get(RECEIVE_KEY), "__self__", None)

    def hang_up(self) -> Callable[[], object]:
        """How to cut this reader off at once. With the transport in reach, bounds are set on what may wait for it."""
        transport: Any = getattr(self.cycle, "transport", None)
        if not hasattr(transport, "abort"):  # by its verbs: uvloop's transports are no `asyncio.Transport`
            task = asyncio.current_task()
            assert task is not None
            return task.cancel
        bound(transport, self.hub.settings)
        abort: Callable[[], object] = transport.abort
        return abort

    def listen(self, connection: Connection) -> None:
        """The connection is the hub's from now on."""
        ids = (value for name, value in self.scope["headers"] if name == b"last-event-id")
        self.hub.open(connection, self.topic, last_event_id=next(ids, None))
