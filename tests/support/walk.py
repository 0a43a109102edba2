"""Which files of the product a request crosses: those of which a function ran meanwhile."""

import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[2]
PRODUCT = ("services", "shared", "features")
TRIES = 4


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


async def crossed(act: Callable[[int], Awaitable[object]]) -> set[str]:
    """The files that each of some runs of `act`, which gets their number, crosses: loops and webhooks of others run
    meanwhile. Number 0 comes before them, as what happens once in a process is not on the way.
    """
    await act(0)
    ways = list[set[str]]()
    for n in range(1, TRIES + 1):
        with walked() as files:
            await act(n)
        ways.append(files)
    return set.intersection(*ways)


def listed(files: set[str]) -> str:
    """For the message of a failure."""
    return "\n".join([f"{len(files)} files:", *sorted(files)])
