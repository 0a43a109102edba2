"""One open stream as the hub sees it, however it is held: a way to write, a way to end it, a way to hang up.

There are thousands of these, so each is slots and nothing else; whatever a way of holding needs beyond that, its own
class adds.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from services.notifier.broadcast.topic import Topic


def body(data: bytes, *, more: bool = True) -> dict[str, Any]:
    """An ASGI message that carries these bytes."""
    return {"type": "http.response.body", "body": data, "more_body": more}


def written(send: Callable[[Any], Coroutine[Any, Any, None]], message: dict[str, Any]) -> bool:
    """Drives an ASGI `send` one step, which tells without a task whether it waits; one that waits writes nothing."""
    writing = send(message)
    try:
        writing.send(None)
    except StopIteration:
        return True
    writing.close()
    return False


class Message:
    """Bytes of a stream in every form in which a connection writes them: made once, shared by all who get them."""

    __slots__ = ("asgi", "chunk", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.chunk = b"%x\r\n%b\r\n" % (len(data), data)
        self.asgi = body(data)


def nothing_held() -> None:
    """Nothing to give back when a stream ends."""


class Connection(ABC):
    """`seen` is the revision of its topic that it has; `paused_since_s` says since when its reader does not read, and
    `ends_s` when it is old enough to be sent away (both by the loop's clock). `left` gives back what it held.
    """

    __slots__ = ("ends_s", "index", "left", "paused_since_s", "seen", "topic")
    way: ClassVar[str]

    def __init__(self, left: Callable[[], object] = nothing_held) -> None:
        self.topic: Topic | None = None
        self.index = self.seen = 0
        self.paused_since_s: float | None = None
        self.ends_s = float("inf")
        self.left = left

    @abstractmethod
    def write(self, message: Message) -> bool:
        """Writes at once and without waiting; `False`, and nothing written, while the reader does not read."""

    @abstractmethod
    def end(self, data: bytes) -> bool:
        """Writes the last bytes and ends the stream in order; `False` if it has to be hung up on instead."""

    @abstractmethod
    def hang_up(self) -> None:
        """Cuts the reader off, whatever still waits for it."""
