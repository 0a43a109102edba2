"""Rows as CSV for people who open it in a spreadsheet: a cell that would be run as a formula is defused."""

import csv
import io
from collections.abc import Iterable
from typing import Any

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def defused(cell: Any) -> Any:
    """Text as text: no spreadsheet may run what a fan typed."""
    return "'" + cell if isinstance(cell, str) and cell.startswith(FORMULA) else cell


def csv_lines(rows: Iterable[Iterable[Any]]) -> bytes:
    """As they follow each other in a file."""
    page = io.StringIO()
    csv.writer(page).writerows([defused(cell) for cell in row] for row in rows)
    return page.getvalue().encode()
