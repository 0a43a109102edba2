"""A reference page: a title, a text, and sections with a table each. Every collector of this folder returns one."""

import textwrap
from collections.abc import Iterable, Sequence
from typing import NamedTuple

WIDTH = 120
WRITTEN = "Written by `make api-documents` from the code; a test compares."


class Section(NamedTuple):
    """A heading with a text, a table, and a text after it; each of them may be empty."""

    heading: str
    columns: Sequence[str] = ()
    rows: Iterable[Sequence[str]] = ()
    text: str = ""
    after: str = ""
    level: int = 2


def page(title: str, text: str, sections: Iterable[Section]) -> str:
    """The page, which ends with one line break."""
    paragraphs = [textwrap.fill(part, WIDTH, break_long_words=False) for part in f"{WRITTEN} {text}".split("\n\n")]
    parts = [f"# {title}", *paragraphs, *(part for section in sections for part in _parts(section))]
    return "\n\n".join(part for part in parts if part) + "\n"


def _parts(section: Section) -> list[str]:
    rows = [_row(row) for row in section.rows]
    table = "\n".join([_row(section.columns), "|---" * len(section.columns) + "|", *rows]) if rows else ""
    return [f"{'#' * section.level} {section.heading}", section.text, table, section.after]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in cells)} |"


def code(text: object) -> str:
    """The text as code, or nothing."""
    return f"`{text}`" if text not in ("", None) else ""


def codes(texts: Iterable[object]) -> str:
    """Each as code, separated by commas."""
    return ", ".join(map(code, texts))


def sentence(text: str) -> str:
    """The text with a capital and a full stop."""
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', ']')) else '.'}" if text else ""
