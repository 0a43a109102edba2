"""Prints what the services say of their invariants."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table


def print_audit(out: Console, rows: Sequence[dict[str, Any]]) -> bool:
    """A line per invariant; whether all of them hold."""
    table = Table("service", "invariant", "holds", "detail")
    for row in rows:
        holds = "[green]yes[/]" if row["holds"] else "[red]NO[/]"
        table.add_row(row["service"], row["invariant"], holds, str(row["detail"]))
    out.print(table)
    return bool(rows) and all(row["holds"] for row in rows)
