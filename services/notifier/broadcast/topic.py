"""A topic: the state of one event or order as a group of connections gets it, and these connections."""

import time
from collections.abc import Callable, Mapping

from services.notifier.broadcast import frames
from services.notifier.broadcast.delta import DeltaBuilder, Encoder
from services.notifier.streams.connection import Connection, Message
from shared.runtime.clock import now_ms

ChangesSince = Callable[[bytes], Mapping[str, set[str]] | None]
SNAPSHOT_EVERY_S = 30.0


class Topic:
    """The state by event name. `revision` rises with every change; a frame brings a connection from the revision
    before it to its own. `changes_since(id)` returns which items changed since that frame id, `None` if unknown.
    """

    def __init__(self, kind: str, *, now_s: float, changes_since: ChangesSince = lambda _: None) -> None:
        self.kind = kind
        self.connections: list[Connection] = []
        self.revision = 0
        self.frame_id = b""
        self.degraded = False
        self.window_ms: int | None = None
        self.due_s = self.written_s = 0.0
        self.empty_since_s = now_s
        self._changes_since = changes_since
        self._parts: dict[str, DeltaBuilder] = {}
        self._changed_at_ms: int | None = None
        self._notices: list[bytes] = []
        self._snapshot: Message | None = None
        self._snapshot_s = time.monotonic()

    def update(self, name: str, items: Mapping[str, object], encode: Encoder, *, at_ms: int) -> bool:
        """Sets the items of one event name; returns whether any changed."""
        part = self._parts.setdefault(name, DeltaBuilder())
        if not part.update(items, encode):
            return False
        self._changed_at_ms = min(at_ms, self._changed_at_ms or at_ms)
        self.revision += 1
        self._snapshot = None
        return True

    def set_frame_id(self, frame_id: bytes) -> None:
        """Sets the id of the current state."""
        if frame_id != self.frame_id:
            self.frame_id, self._snapshot = frame_id, None

    def add_notice(self, notice: bytes) -> None:
        """Adds an event for the present connections to the next frame."""
        self._notices = [notice]
        self.revision += 1

    def snapshot(self) -> Message:
        """The whole state, for new connections and for those that have fallen behind."""
        if self._snapshot is None:
            parts = [(name, part.encode_all()) for name, part in self._parts.items()]
            self._snapshot = Message(frames.encode_events(parts, self.frame_id))
        self._mark_snapshot_taken()
        return self._snapshot

    def replay(self, last_event_id: bytes | None) -> tuple[str, bytes]:
        """The kind of what a listener with this last id lacks (`none`, `delta`, `snapshot`), and its data."""
        changes_since = None if last_event_id is None or self.degraded else self._changes_since(last_event_id)
        if changes_since is None:
            return "snapshot", self.snapshot().data
        self._mark_snapshot_taken()
        parts = [(name, self._parts[name].encode(names)) for name, names in changes_since.items() if names]
        return ("delta", frames.encode_events(parts, self.frame_id)) if parts else ("none", b"")

    def _mark_snapshot_taken(self) -> None:
        for part in self._parts.values():
            part.snapshot_taken()

    def next_frame(self) -> tuple[Message, int]:
        """What changed since the last frame, and when (ms since the epoch) the oldest change happened. Every
        `SNAPSHOT_EVERY_S` the whole state, so that no client stays wrong; empty if all that changed has changed back.
        """
        data = b"".join(frames.encode_events([("notice", notice)], None) for notice in self._notices)
        parts = [
            (name, data_of_part)
            for name, part in self._parts.items()
            if (data_of_part := part.next_delta()) is not None
        ]
        happened_ms = self._changed_at_ms or now_ms()
        self._notices, self._changed_at_ms = [], None
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
