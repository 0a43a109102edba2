"""One open stream as the hub sees it, whatever its transport: write to it, end it, abort it.

A process holds thousands of these, so each has slots only; a transport's own class adds what it needs.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from services.notifier.topics.topic import Topic


def body_message(data: bytes, *, more: bool = True) -> dict[str, Any]:
    """An ASGI message that carries these bytes."""
    return {"type": "http.response.body", "body": data, "more_body": more}


def try_send(send: Callable[[Any], Coroutine[Any, Any, None]], message: dict[str, Any]) -> bool:
    """Runs an ASGI `send` for one step, without a task. Returns `False`, with nothing written, if it would wait."""
    writing = send(message)
    try:
        writing.send(None)
    except StopIteration:
        return True
    writing.close()
    return False


class Message:
    """Bytes of a stream in the form of each transport: encoded once, shared by all connections."""

    __slots__ = ("asgi", "chunk", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.chunk = b"%x\r\n%b\r\n" % (len(data), data)
        self.asgi = body_message(data)


def no_cleanup() -> None:
    """For streams that hold nothing."""


class Connection(ABC):
    """`revision` is the topic's revision that was last written to it. `paused_since_s`: since when its reader does not
    read; `ends_s`: when it reaches its maximum age (both by the loop's clock). `on_end` releases what it holds.
    """

    __slots__ = ("ends_s", "index", "on_end", "paused_since_s", "revision", "topic")
    transport_name: ClassVar[str]

    def __init__(self, on_end: Callable[[], object] = no_cleanup) -> None:
        self.topic: Topic | None = None
        self.index = self.revision = 0
        self.paused_since_s: float | None = None
        self.ends_s = float("inf")
        self.on_end = on_end

    @abstractmethod
    def write(self, message: Message) -> bool:
        """Writes at once and without waiting; `False`, and nothing written, while the reader does not read."""

    @abstractmethod
    def end(self, data: bytes) -> bool:
        """Writes the last bytes and ends the stream in order; `False` if it must be aborted instead."""

    @abstractmethod
    def abort(self) -> None:
        """Closes the connection at once, with unsent data lost."""
