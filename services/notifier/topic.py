"""A topic: the latest state of one thing as every listener of it hears it, and who these are."""

from collections.abc import Callable
from typing import Any

import orjson

from services.notifier import frames
from services.notifier.connection import Connection, Message
from shared.clock import now_ms

GIVEN_OUT_MAX = 64


class Topic:
    """`parts` is the state, event name by event name. `revision` rises with every change of it; a frame brings whoever
    has seen the revision before it up to its own.
    """

    def __init__(self, kind: str, *, now_s: float) -> None:
        self.kind = kind
        self.connections: list[Connection] = []
        self.revision = 0
        self.frame_id = b""
        self.degraded = False
        self.due_s = self.written_s = 0.0
        self.empty_since_s = now_s
        self._parts: dict[str, tuple[object, bytes]] = {}
        self._revised: dict[str, int] = {}
        self._given_out: dict[bytes, int] = {}
        self._changed: set[str] = set()
        self._changed_at_ms: int | None = None
        self._notices: list[bytes] = []
        self._snapshot: Message | None = None

    def show(
        self, name: str, fact: object, frame_id: bytes, *, at_ms: int, body: Callable[[], object] | None = None
    ) -> bool:
        """Takes in the latest `fact`, as `body` tells it; says whether it is news."""
        known = self._parts.get(name)
        if known is not None and known[0] == fact:
            return False
        self._parts[name] = (fact, orjson.dumps(fact if body is None else body()))
        self._changed.add(name)
        self._changed_at_ms = min(at_ms, self._changed_at_ms or at_ms)
        self.frame_id = frame_id
        self.revision += 1
        self._revised[name] = self.revision
        self._snapshot = None
        return True

    def tell(self, notice: bytes) -> None:
        """Something for those who listen now, said once."""
        self._notices = [notice]
        self.revision += 1

    def snapshot(self) -> Message:
        """Everything, for newcomers and for those who have fallen behind."""
        self._remember()
        if self._snapshot is None:
            self._snapshot = Message(self._compose(self._parts))
        return self._snapshot

    def replay(self, last_event_id: bytes | None) -> tuple[str, bytes]:
        """What brings a newcomer who has heard `last_event_id` to the present, and what kind of answer that is: a delta
        is every part that changed since this id was first given out, so that nothing can be missing from it.
        """
        self._remember()
        since = None if last_event_id is None or self.degraded else self._given_out.get(last_event_id)
        if since is None:
            return "snapshot", self.snapshot().data
        missed = [name for name in self._parts if self._revised[name] > since]
        return ("delta", self._compose(missed)) if missed else ("none", b"")

    def _remember(self) -> None:
        self._given_out.setdefault(self.frame_id, self.revision)
        if len(self._given_out) > GIVEN_OUT_MAX:
            del self._given_out[next(iter(self._given_out))]

    def take_frame(self) -> tuple[Message, int]:
        """What changed since the last frame, and when (ms since the epoch) the oldest of it happened."""
        events = [("notice", notice) for notice in self._notices]
        data = frames.compose(events, None) if events else b""
        changed = [name for name in self._parts if name in self._changed]
        data += self._compose(changed) if changed else b""
        happened_ms = self._changed_at_ms or now_ms()
        self._remember()
        self._notices, self._changed, self._changed_at_ms = [], set(), None
        return Message(data), happened_ms

    def _compose(self, names: Any) -> bytes:
        return frames.compose([(name, self._parts[name][1]) for name in names], self.frame_id)

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
