"""The index of the decisions, from the records in docs/decisions.

A record has the form of MADR: status and date before its title, then context, options, outcome and consequences.
"""

import re
from pathlib import Path
from typing import NamedTuple

import yaml

from tools.reference.markdown import Section, page

FOLDER = Path(__file__).parents[2] / "docs" / "decisions"
HEADINGS = ("Context and problem statement", "Considered options", "Decision outcome", "Consequences")
FRONT = re.compile(r"---\n(.*?)\n---\n+# (\d{4}) · ([^\n]+)\n", re.S)
TEXT = """A record says what was decided, against what, and what follows; it is written when a boundary is crossed
(HTTP, tokens, keys, tables, frames, events) and not rewritten afterwards: a later one supersedes it. The form is that
of [MADR](https://adr.github.io/madr/). A number that is missing was never
used, or went with what it decided."""


class Record(NamedTuple):
    """One record: its file, and what its head says."""

    path: Path
    number: str
    title: str
    status: str
    date: str

    @classmethod
    def read(cls, path: Path) -> "Record":
        """Raises `ValueError` for a head of another form."""
        found = FRONT.match(path.read_text(encoding="utf-8"))
        if found is None:
            raise ValueError(f"{path.name} has no status and date before its title")
        head = yaml.safe_load(found[1])
        return cls(path, found[2], found[3], head["status"], str(head["date"]))


def records() -> list[Record]:
    """Every record, by number."""
    return [Record.read(path) for path in sorted(FOLDER.glob("0*.md"))]


def index_page() -> str:
    """docs/decisions/index.md"""
    return page("Decisions", TEXT, [Section("All records", ("number", "decision", "status", "date"), [
        (record.number, f"[{record.title}]({record.path.name})", _linked(record.status), record.date)
        for record in records()
    ])])  # fmt: skip


def _linked(status: str) -> str:
    """The status, with a link to the record that supersedes it."""
    return re.sub(r"\d{4}", lambda number: f"[{number[0]}]({next(FOLDER.glob(f'{number[0]}-*')).name})", status)
