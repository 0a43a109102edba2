"""The navigation of the documentation site. The site is built in `proof/deploy/test_package.py`."""

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"


def pages(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        for value in [entry] if isinstance(entry, str) else entry.values():
            yield from [value] if isinstance(value, str) else pages(value)


def test_every_page_is_in_the_navigation_once() -> None:
    found = list(pages(runpy.run_path(str(DOCS / "site" / "hooks.py"))["navigation"]()))
    kept = (path.relative_to(DOCS) for path in DOCS.rglob("*.md"))
    assert sorted(found) == sorted(str(path) for path in kept if path.parts[0] != "examples")
