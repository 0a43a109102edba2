"""`onsale order …`: what was done for orders, doing it again, and which share of checkouts the background does."""

from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlencode

import typer
from rich.table import Table

from onsale.commands.context import DATA_DIR, DataDir, EventId, Url, ask, out

app = typer.Typer(no_args_is_help=True, help="See what was done for orders, and have it done again.")
Reason = Annotated[str, typer.Option(help="Kept in the audit trail.")]
PATH = "/admin/orders"


@app.command("commands")
def show_commands(
    event: Annotated[str | None, typer.Option(help="Of this event.")] = None,
    reference: Annotated[str | None, typer.Option(help="Of this order.")] = None,
    status: Annotated[str | None, typer.Option(help="pending, processing, completed or failed.")] = None,
    page: Annotated[int, typer.Option(min=1, max=1000)] = 1,
    url: Url = None,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Every step of orders: what, what caused it, how often it was tried, and with what error; the newest first."""
    wanted = {"event_id": event, "reference": reference, "status": status, "page": page}
    path = f"{PATH}/commands?{urlencode({name: value for name, value in wanted.items() if value is not None})}"
    table = Table("when", "order", "command", "status", "caused by", "tries", "error", "id")
    for row in ask(url, data_dir, lambda admin: admin.call("GET", path))["commands"]:
        table.add_row(*_told(row))
    out.print(table)


def _told(row: Mapping[str, Any]) -> list[str]:
    when = row["created_at"][:19].replace("T", " ")
    told = [when, row["reference"], row["command_type"], row["status"], row["caused_by"], row["attempts"]]
    return [*map(str, told), row["error_message"] or "", row["command_id"]]


@app.command("rerun")
def rerun(
    command_id: Annotated[str, typer.Argument(metavar="COMMAND_ID", help="As `onsale order commands` shows it.")],
    reason: Reason = "onsale order rerun",
    url: Url = None,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Replay a command now instead of when its next try comes."""
    path = f"{PATH}/commands/{command_id}/rerun"
    again = ask(url, data_dir, lambda admin: admin.call("POST", path, {"reason": reason}))
    out.print(f"{again['reference']}: {again['command_type']} runs again as {again['command_id']}")


@app.command("background")
def background(
    event_id: EventId,
    percent: Annotated[
        float | None, typer.Option(min=0, max=100, help="Of the fans; without it, what it is now is shown.")
    ] = None,
    reason: Reason = "onsale order background",
    url: Url = None,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """How much of an event's checkouts the background does; the others are settled in their own request."""
    path = f"{PATH}/events/{event_id}/checkout"
    if percent is not None:
        body = {"background_percent": percent, "reason": reason}
        ask(url, data_dir, lambda admin: admin.call("PATCH", path, body))
    now = ask(url, data_dir, lambda admin: admin.call("GET", path))
    out.print(f"{event_id}: {now['background_percent']:g} % in the background")
