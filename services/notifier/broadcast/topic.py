"""A topic: the latest state of one thing as every listener of it hears it, and who these are."""

import time
from collections.abc import Callable, Mapping

from services.notifier.broadcast import frames
from services.notifier.broadcast.delta import DeltaBuilder, Tell
from services.notifier.streams.connection import Connection, Message
from shared.runtime.clock import now_ms

Missed = Callable[[bytes], Mapping[str, set[str]] | None]
WHOLE_EVERY_S = 30.0


class Topic:
    """`parts` is the state, event name by event name. `revision` rises with every change of it; a frame brings whoever
    has seen the revision before it up to its own. `missed(id)` says which items changed since that id, if provable.
    """

    def __init__(self, kind: str, *, now_s: float, missed: Missed = lambda _: None) -> None:
        self.kind = kind
        self.connections: list[Connection] = []
        self.revision = 0
        self.frame_id = b""
        self.degraded = False
        self.window_ms: int | None = None
        self.due_s = self.written_s = 0.0
        self.empty_since_s = now_s
        self._missed = missed
        self._parts: dict[str, DeltaBuilder] = {}
        self._changed_at_ms: int | None = None
        self._notices: list[bytes] = []
        self._snapshot: Message | None = None
        self._whole_s = time.monotonic()

    def show(self, name: str, items: Mapping[str, object], tell: Tell, *, at_ms: int) -> bool:
        """Takes in the latest of one part; says whether it is news."""
        part = self._parts.setdefault(name, DeltaBuilder())
        if not part.show(items, tell):
            return False
        self._changed_at_ms = min(at_ms, self._changed_at_ms or at_ms)
        self.revision += 1
        self._snapshot = None
        return True

    def identify(self, frame_id: bytes) -> None:
        """The id of the state as it is now."""
        if frame_id != self.frame_id:
            self.frame_id, self._snapshot = frame_id, None

    def tell(self, notice: bytes) -> None:
        """Something for those who listen now, said once."""
        self._notices = [notice]
        self.revision += 1

    def snapshot(self) -> Message:
        """Everything, for newcomers and for those who have fallen behind."""
        if self._snapshot is None:
            whole = [(name, part.whole()) for name, part in self._parts.items()]
            self._snapshot = Message(frames.compose(whole, self.frame_id))
        self._give()
        return self._snapshot

    def replay(self, last_event_id: bytes | None) -> tuple[str, bytes]:
        """What somebody lacks who has heard up to this id: nothing, provably all that changed, or everything; and
        which of these it is.
        """
        missed = None if last_event_id is None or self.degraded else self._missed(last_event_id)
        if missed is None:
            return "snapshot", self.snapshot().data
        self._give()
        told = [(name, self._parts[name].tell(names)) for name, names in missed.items() if names]
        return ("delta", frames.compose(told, self.frame_id)) if told else ("none", b"")

    def _give(self) -> None:
        for part in self._parts.values():
            part.next()

    def take_frame(self) -> tuple[Message, int]:
        """What changed since the last frame, and when (ms since the epoch) the oldest of it happened. Now and then
        everything, so that whoever went wrong does not stay so; nothing if all that changed has changed back.
        """
        data = b"".join(frames.compose([("notice", notice)], None) for notice in self._notices)
        told = [(name, said) for name, part in self._parts.items() if (said := part.snapshot_taken()) is not None]
        happened_ms = self._changed_at_ms or now_ms()
        self._notices, self._changed_at_ms = [], None
        now_s = time.monotonic()
        if told and now_s - self._whole_s >= WHOLE_EVERY_S:
            self._whole_s = now_s
            data += self.snapshot().data
        elif told:
            data += frames.compose(told, self.frame_id)
        return Message(data), happened_ms

    def add(self, connection: Connection) -> None:
        connection.topic, connection.index = self, len(self.connections)
        self.connections.append(connection)

    def remove(self, connection: Connection, *, now_s: float) -> None:
        """The last one takes the freed place: leaving costs the same however many listen."""
        last = self.connections.pop()
        if last is not connection:
            self.connections[connection.index] = last
            last.index = connection.index
        connection.topic = None
        if not self.connections:
            self.empty_since_s = now_s
