"""What a page knows that applies what it hears: a whole `sections` replaces, a delta is laid over."""

from collections.abc import Iterable
from typing import Any, Self

import orjson

from services.notifier.broadcast.topic import Topic
from tests.notifier.ear import Ear, Heard


def say(topic: Topic, fact: object) -> None:
    """The topic has news of its line."""
    topic.identify(b"1.%d" % (topic.revision + 1))
    topic.show("line", {"line": fact}, lambda _: orjson.dumps(fact), at_ms=1)


class Page:
    def __init__(self) -> None:
        self.line: Any = None
        self.sections: dict[str, tuple[int, int]] = {}
        self.degraded = False
        self.last_id: str | None = None

    def hear(self, heard: Iterable[Heard]) -> Self:
        for one in heard:
            if one.name == "line":
                self.line = one.data
            elif one.name == "sections":
                self._lay(one.data)
            self.last_id = one.frame_id or self.last_id
        return self

    def _lay(self, data: Any) -> None:
        said = {s["section_id"]: (s["available_seats"], s["held_seats"]) for s in data["sections"]}
        self.sections = self.sections | said if data.get("delta") else said
        self.degraded = data.get("degraded", False)

    def read(self, body: bytes) -> Self:
        """Hears a piece of a stream."""
        ear = Ear(None, None)  # type: ignore[arg-type]
        ear.body = body
        return self.hear(ear.heard)

    @property
    def available(self) -> dict[str, int]:
        return {section_id: available for section_id, (available, _) in self.sections.items()}

    @property
    def state(self) -> tuple[Any, dict[str, tuple[int, int]], bool]:
        return self.line, self.sections, self.degraded
