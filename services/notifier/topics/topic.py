"""A topic: the state of one event or order as a group of connections gets it, and these connections.

A connection is an open stream, whatever its transport: write to it, end it, abort it. A process holds thousands of
these, so each has slots only; a transport's own class adds what it needs.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from services.notifier.topics import frames
from shared.runtime.clock import now_ms

ChangesSince = Callable[[bytes], Mapping[str, set[str]] | None]
Encoder = Callable[[Collection[str] | None], bytes]
SNAPSHOT_EVERY_S = 30.0


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


def differing(one: Mapping[str, object], other: Mapping[str, object]) -> set[str]:
    """The names of items that are new, gone or different."""
    gone = one.keys() - other.keys()
    return {name for name, item in other.items() if name not in one or one[name] != item} | gone


@dataclass(slots=True)
class _Part:
    """The items under one event name: now, and in the last frame. `encode(names)` gives the bytes of these items,
    `encode(None)` of all.

    A newcomer between two frames gets a snapshot, so items that differed from the last frame at that moment are `due`
    in the next one: an item that changed and changed back would stay wrong for them.
    """

    encode: Encoder
    items: Mapping[str, object] = field(default_factory=dict)
    sent: Mapping[str, object] = field(default_factory=dict)
    due: set[str] = field(default_factory=set)

    def mark_due(self) -> None:
        if self.items is not self.sent:
            self.due |= differing(self.sent, self.items)

    def next_delta(self) -> bytes | None:
        """The items that are due; `None` if there are none. Starts the next frame."""
        self.mark_due()
        names, self.due, self.sent = self.due, set(), self.items
        return self.encode_items(names) if names else None

    def encode_items(self, names: Collection[str]) -> bytes:
        """These items; all items if that is no longer, or if one of them is gone."""
        every = len(names) >= len(self.items) or not all(name in self.items for name in names)
        return self.encode(None if every else names)


class Topic:
    """The state by event name. `revision` rises with every change; a frame brings a connection from the revision
    before it to its own. `changes_since(id)` returns which items changed since that frame id, `None` if unknown.
    """

    def __init__(self, kind: str, *, now_s: float, changes_since: ChangesSince = lambda _: None) -> None:
        self.kind = kind
        self.event_id: str | None = None  # an order's topic has none
        self.connections: list[Connection] = []
        self.revision = 0
        self.frame_id = b""
        self.degraded = False
        self.window_ms: int | None = None
        self.due_s = self.written_s = 0.0
        self.empty_since_s = now_s
        self._changes_since = changes_since
        self._parts: dict[str, _Part] = {}
        self._changed_at_ms: int | None = None
        self._notice = b""
        self._snapshot: Message | None = None
        self._snapshot_s = time.monotonic()

    def update(self, name: str, items: Mapping[str, object], encode: Encoder, *, at_ms: int) -> bool:
        """Sets the items of one event name; returns whether any changed."""
        part = self._parts.setdefault(name, _Part(encode))
        changed = part.items != items
        part.items, part.encode = items, encode
        if changed:
            self._changed_at_ms = min(at_ms, self._changed_at_ms or at_ms)
            self.revision += 1
            self._snapshot = None
        return changed

    def set_frame_id(self, frame_id: bytes) -> None:
        """Sets the id of the current state."""
        if frame_id != self.frame_id:
            self.frame_id, self._snapshot = frame_id, None

    def add_notice(self, notice: bytes) -> None:
        """Adds an event for the present connections to the next frame."""
        self._notice = notice
        self.revision += 1

    def snapshot(self) -> Message:
        """The whole state, for new connections and for those that have fallen behind."""
        if self._snapshot is None:
            parts = [(name, part.encode(None)) for name, part in self._parts.items()]
            self._snapshot = Message(frames.encode_events(parts, self.frame_id))
        self._mark_due()
        return self._snapshot

    def replay(self, last_event_id: bytes | None) -> tuple[str, bytes]:
        """The kind of what a listener with this last id lacks (`none`, `delta`, `snapshot`), and its data."""
        changes_since = None if last_event_id is None or self.degraded else self._changes_since(last_event_id)
        if changes_since is None:
            return "snapshot", self.snapshot().data
        self._mark_due()
        parts = [(name, self._parts[name].encode_items(names)) for name, names in changes_since.items() if names]
        return ("delta", frames.encode_events(parts, self.frame_id)) if parts else ("none", b"")

    def _mark_due(self) -> None:
        for part in self._parts.values():
            part.mark_due()

    def next_frame(self) -> tuple[Message, int]:
        """What changed since the last frame, and when (ms since the epoch) the oldest change happened. Every
        `SNAPSHOT_EVERY_S` the whole state, so that no client stays wrong; empty if all that changed has changed back.
        """
        deltas = [(name, part.next_delta()) for name, part in self._parts.items()]
        parts = [(name, delta) for name, delta in deltas if delta is not None]
        data, self._notice = self._notice, b""
        happened_ms, self._changed_at_ms = self._changed_at_ms or now_ms(), None
        now_s = time.monotonic()
        if parts and now_s - self._snapshot_s >= SNAPSHOT_EVERY_S:
            self._snapshot_s = now_s
            data += self.snapshot().data
        elif parts:
            data += frames.encode_events(parts, self.frame_id)
        return Message(data), happened_ms

    def add(self, connection: Connection) -> None:
        connection.topic, connection.index = self, len(self.connections)
        self.connections.append(connection)

    def remove(self, connection: Connection, *, now_s: float) -> None:
        """Removes in constant time: the last connection takes the freed index."""
        last = self.connections.pop()
        if last is not connection:
            self.connections[connection.index] = last
            last.index = connection.index
        connection.topic = None
        if not self.connections:
            self.empty_since_s = now_s
