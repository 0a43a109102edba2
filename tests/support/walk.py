"""Which files of the product a request crosses: those of which a function ran meanwhile."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[2]
PRODUCT = ("services", "shared", "features")


@contextmanager
def walked() -> Iterator[set[str]]:
    """The Python files under `services/`, `shared/` and `features/` of which this thread runs a function meanwhile."""
    seen, files = set[str](), set[str]()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and (name := frame.f_code.co_filename) not in seen:
            seen.add(name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield files
    finally:
        sys.setprofile(before)
        for name in seen:
            path = Path(name)
            if path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in PRODUCT:
                files.add(str(path.relative_to(ROOT)))
