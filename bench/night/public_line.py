"""The public line as fans far back read it from a cache in front of the gateway, where that tells them to.

The cache asks the gateway once a second, as nginx does with `proxy_cache`. Its readers cost the suite nothing, so their
reads are no events here: a fan whose next read would show something goes on at a random moment of the time between two
reads.
"""

import heapq
import random
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import orjson

from bench.harness.load import request
from bench.night.fan import Call, Life, Pause, ReadLine, Sale, Step
from onsale.client.fan import OVER

KEPT_S = 1.0


@dataclass(slots=True)
class Reader:
    """A fan far back; without a `life` once it went on."""

    life: Life | None


class PublicLine:
    """The cached answer and its readers. `go_on_later` is called with a reader, what it is sent, and after how long."""

    def __init__(self, sale: Sale, go_on_later: Callable[[Reader, Any, float], None]) -> None:
        self._data = request("GET", f"{sale.path}/queue")
        self._go_on_later = go_on_later
        self._readers: list[tuple[int, int, Reader]] = []
        self._head = self._near = self._number = 0
        self._between_s, self._is_over = KEPT_S, False

    def add(self, reads: ReadLine, life: Life) -> Reader:
        """A fan who reads from now on."""
        reader = Reader(life)
        self._number += 1
        heapq.heappush(self._readers, (reads.join_seq, self._number, reader))
        self._go_on_later(reader, None, reads.seconds)
        self._wake()
        return reader

    def refresh(self) -> Generator[Step, Any, None]:
        """What the cache does: a life that never ends."""
        while True:
            answer = yield Call("line, by the cache", "line", self._data)
            if answer.status == 200:
                self.read(orjson.loads(answer.body))
            yield Pause(KEPT_S)

    def read(self, line: dict[str, Any]) -> None:
        """A new answer is in the cache."""
        self._head, self._is_over = line["head_seq"], line["state"] in OVER
        self._near = line["near_places"] if line["heartbeat_after_ms"] else 2**63
        self._between_s = line["poll_after_ms"] / 1000
        self._wake()

    def _wake(self) -> None:
        came = "sold out" if self._is_over else None
        while self._readers and (self._is_over or self._readers[0][0] - self._head <= self._near):
            _, _, reader = heapq.heappop(self._readers)
            if reader.life is not None:
                self._go_on_later(reader, came, self._between_s * random.uniform(0.0, 1.0))
