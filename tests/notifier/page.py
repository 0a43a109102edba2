"""The state of a fan's page: a full `sections` event replaces it, a delta updates it; and the seats that it shows."""

from base64 import b64decode
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import orjson

from features.hall import seat_codes
from services.notifier.topics.topic import Topic
from tests.notifier.client import SseClient, SseEvent


def update_line(topic: Topic, state: object) -> None:
    topic.set_frame_id(b"1.%d" % (topic.revision + 1))
    topic.update("line", {"line": state}, lambda _: orjson.dumps(state), at_ms=1)


class Page:
    def __init__(self) -> None:
        self.line: Any = None
        self.sections: dict[str, tuple[int, int]] = {}
        self.degraded = False
        self.last_id: str | None = None

    def apply(self, events: Iterable[SseEvent]) -> Self:
        for event in events:
            if event.name == "line":
                self.line = event.data
            elif event.name == "sections":
                self._apply_sections(event.data)
            self.last_id = event.frame_id or self.last_id
        return self

    def _apply_sections(self, data: Any) -> None:
        changes = {s["section_id"]: (s["available_seats"], s["held_seats"]) for s in data["sections"]}
        self.sections = self.sections | changes if data.get("delta") else changes
        self.degraded = data.get("degraded", False)

    def read(self, body: bytes) -> Self:
        """Applies a part of a stream."""
        client = SseClient(None, None)  # type: ignore[arg-type]
        client.body = body
        return self.apply(client.events)

    @property
    def available(self) -> dict[str, int]:
        return {section_id: available for section_id, (available, _) in self.sections.items()}

    @property
    def state(self) -> tuple[Any, dict[str, tuple[int, int]], bool]:
        return self.line, self.sections, self.degraded


State = tuple[int, bytes]


@dataclass
class SeatPage:
    """A page that shows seats, as docs/use/hall.md tells it to. `read` is `GET …/map/state`."""

    seats: int
    version: int = -1
    codes: bytes = b""
    healed: int = 0

    def apply(self, data: dict[str, Any], read: State) -> None:
        """Applies one event `seats`."""
        if 0 < data["v"] <= self.version:
            return
        if "s" in data:
            self.version, self.codes = data["v"], seat_codes.unpack(b64decode(data["s"]), self.seats)
        elif data["after"] > self.version:
            (self.version, self.codes), self.healed = read, self.healed + 1
        else:
            self.version, self.codes = data["v"], seat_codes.apply_changes(self.codes, b64decode(data["d"]))
