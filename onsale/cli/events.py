"""`onsale events` and `onsale audit`: apply event files and read them back, check an event's invariants."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from onsale import event_files
from onsale.cli.context import AdminCommands, EventId, Reason, err, for_suite, out, with_admin
from shared.contracts.event_file import EventFile

if TYPE_CHECKING:
    from shared.report.invariants import CheckedInvariant

app = AdminCommands(help="Apply event files to a running suite, and read them back.")
LEFT_OUT = """\
# The event as it stands: applying this file changes nothing.
# Not in it: access codes (only their hashes are kept), promo codes, places blocked by hand, allotments that are open
# (their places are on sale), a drawn lottery's seed, pictures (`--to FOLDER` writes them), and what was sold.
"""


@app.command("apply")
def apply(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Event files (YAML), such as arena.yaml.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the files against the suite and change nothing.")
    ] = False,
    reason: Reason = None,
) -> None:
    """Apply event files to a running suite, with the pictures that lie beside them. Needs an admin key.

    A file that any service refuses changes nothing. Applying a file again changes nothing. The waiting room of a new
    event is a draft: `onsale room open EVENT_ID` lets fans in.

    Example: onsale events apply arena.yaml --dry-run
    """
    events = [(path, event_files.read(path)) for path in files]
    for event, pictures in [(event, event_files.pictures(path, event)) for path, event in events]:
        out.print(_applied(event, pictures, dry_run=dry_run, reason=reason), soft_wrap=True)


@app.command("show")
def show(
    event_id: EventId,
    to: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="Write EVENT_ID.yaml and its pictures into this folder."),
    ] = None,
) -> None:
    """Print the event file of an event as it stands, with all that operators changed since. Needs a viewer's key.

    Applying it again changes nothing.

    Example: onsale events show arena-2026 > arena.yaml
    """
    event = with_admin(lambda admin: admin.event_file(event_id))
    text = LEFT_OUT + event_files.write(event)
    if to is None:
        typer.echo(text, nl=False)
        return
    pictures = with_admin(lambda admin: admin.pictures(event_id, event.files))
    for name, content in {f"{event_id}.yaml": text.encode(), **pictures}.items():
        (to / name).write_bytes(content)
        out.print(str(to / name), soft_wrap=True)


def _applied(event: EventFile, pictures: Mapping[str, bytes], *, dry_run: bool, reason: str | None) -> str:
    warnings: list[str] = []
    changes = with_admin(
        lambda admin: admin.apply(event, pictures=pictures, dry_run=dry_run, reason=reason, warn=warnings.append)
    )
    for warning in warnings:
        err.print(f"{event.event_id}: warning: {warning}", style="yellow", soft_wrap=True, markup=False)
    changed = ", ".join(service for service, differs in changes.items() if differs) or "nothing"
    if dry_run:
        return f"{event.event_id}: would change {changed}"
    state = with_admin(lambda admin: admin.read_room(event.event_id)).state
    hint = f"; its room is a draft: onsale room open {event.event_id}" if state == "draft" else ""
    return f"{event.event_id}: applied, changed {changed}{hint}"


@for_suite
def audit(event_id: EventId) -> None:
    """Check the invariants of an event in Redis and PostgreSQL. Exit code 1 if one does not hold.

    Example: onsale audit arena-2026
    """
    if not print_audit(out, with_admin(lambda admin: admin.audit(event_id))):
        raise typer.Exit(1)


def print_audit(screen: Console, rows: "Sequence[CheckedInvariant]") -> bool:
    """Prints a row for each invariant; whether there are any and all of them hold."""
    table = Table("service", "invariant", "holds", "detail")
    for row in rows:
        holds = "[green]yes[/]" if row.holds else "[red]NO[/]"
        table.add_row(row.service, row.invariant, holds, row.detail)
    screen.print(table)
    return bool(rows) and all(row.holds for row in rows)
