"""`onsale check-history`: holds a sale to what its fans were told."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from onsale.cli.context import DATA_DIR, DataDir, out, run_async

if TYPE_CHECKING:
    from onsale.history.checker import Report

File = Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="The history.")]


def check_history(
    file: File,
    event_id: Annotated[list[str] | None, typer.Option(help="Check this event only; may repeat.")] = None,
    data_dir: DataDir = DATA_DIR,
    sandbox_url: Annotated[
        str | None, typer.Option(help="The payment sandbox to compare with; else as the data directory says.")
    ] = None,
) -> None:
    """Check that a sale kept what it told its fans: places, calls, holds, orders, tickets, charges.

    A history is written by `onsale simulate --history`. The databases are those in ONSALE_POSTGRES_URL (or QUEUE_…,
    INVENTORY_…, ORDERS_POSTGRES_URL), else that of the data directory; they are only read. Run it when no payment is on
    its way any more. Exit code 1 if a promise was broken.

    Example: onsale check-history history.jsonl
    """
    from onsale.history.reading import report_on  # as slow to import as what it reads with

    report = run_async(report_on(file, event_id or (), data_dir, sandbox_url))
    _print(report, file)
    if not report.is_clean:
        raise typer.Exit(1)


def _print(report: "Report", file: Path) -> None:
    read = Table("the history says", "times")
    for what, count in sorted(report.read.items()):
        read.add_row(what.replace("_", " "), str(count))
    checked = Table("checked", "compared", "broken")
    for check_ in report.checked:
        checked.add_row(check_.title, str(check_.compared), f"[red]{check_.broken}[/]" if check_.broken else "0")
    out.print(read, checked)
    for violation in report.violations:
        where = f" ({file.name}:{', '.join(map(str, violation.lines))})" if violation.lines else ""
        out.print(f"[red]broken:[/] {violation.sentence}{where}", soft_wrap=True)
