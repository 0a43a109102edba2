"""The history of a sale as a file of JSON lines: each acknowledgement is in the file before its reader goes on.

Several processes may append to one file: a line is one write. Times are ms since 1970 by the clock of the recording
process: what a line states became true after `sent_ms` and was known at `at_ms`.
"""

import json
import os
import time
from pathlib import Path
from typing import Any, Self

from onsale.history.acknowledgements import facts_of
from onsale.history.exchange import Exchange


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class History:
    """Appends to the file; closing it is optional, as nothing is buffered."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._file)

    def answered(self, exchange: Exchange) -> None:
        """Appends what this answer acknowledges, if anything."""
        for facts in facts_of(exchange):
            self._append({"sent_ms": exchange.sent_ms, "at_ms": exchange.at_ms, **facts})

    def note(self, what: str, **facts: Any) -> None:
        """Appends what else a reader must know: a fault that began or ended, the end of the history."""
        now = now_ms()
        self._append({"sent_ms": now, "at_ms": now, "what": what, **facts})

    def _append(self, line: dict[str, Any]) -> None:
        os.write(self._file, json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() + b"\n")
