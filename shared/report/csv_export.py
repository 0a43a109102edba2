"""Writes rows as CSV for spreadsheets: every CSV file of the suite is written here.

A file begins with a byte order mark, without which Excel does not read it as UTF-8. A cell that would run as a formula
is escaped, no number has an exponent, and times are RFC 3339.
"""

import csv
import io
from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from typing import Any

BOM = b"\xef\xbb\xbf"
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # the wide forms, too, where text is Japanese


def escape_formula(cell: Any) -> Any:
    """Prefixes text that a spreadsheet would run as a formula, such as a name that a fan typed."""
    return "'" + cell if isinstance(cell, str) and cell.startswith(FORMULA) else cell


def csv_head(columns: Iterable[str]) -> bytes:
    """The beginning of a CSV file, with the names of its columns. Python reads it as `utf-8-sig`."""
    return BOM + csv_lines([columns])


def _cell(cell: Any) -> Any:
    if isinstance(cell, datetime):
        return cell.isoformat()
    return f"{cell:f}" if isinstance(cell, Decimal) else escape_formula(cell)


def csv_lines(rows: Iterable[Iterable[Any]]) -> bytes:
    """The rows as bytes of a CSV file, UTF-8."""
    page = io.StringIO()
    csv.writer(page).writerows([_cell(cell) for cell in row] for row in rows)
    return page.getvalue().encode()
