"""`onsale stock`: what an event has left, held, sold, blocked and kept aside, and how operators change it on sale."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.table import Table

from onsale.commands.client import Refused
from onsale.commands.context import DATA_DIR, DataDir, EventId, Url, ask, out
from onsale.commands.downloads import download

app = typer.Typer(no_args_is_help=True, help="See and change what is for sale, while it sells.")
Reason = Annotated[str | None, typer.Option(help="Kept in the audit trail.")]
Seats = Annotated[list[str] | None, typer.Option("--seat", help="A seat, as A-1-2; may be repeated.")]
Rows = Annotated[list[str] | None, typer.Option("--rows", help="Rows of a section, as A:1-3; may be repeated.")]
Ga = Annotated[list[str] | None, typer.Option("--ga", help="Places of a GA section, as GA1:20; may be repeated.")]
COLUMNS = ("capacity", "available", "held", "sold", "blocked", "kept_aside", "revenue_minor")


def _path(event_id: str, *parts: str) -> str:
    return "/".join((f"/admin/inventory/events/{event_id}", *parts))


def _ask(url: str | None, data_dir: Path, method: str, path: str, body: Any = None) -> dict[str, Any]:
    return dict(ask(url, data_dir, lambda admin: admin.call(method, path, body)))


def _places(seats: list[str] | None, rows: list[str] | None, ga: list[str] | None) -> dict[str, Any]:
    """As the API takes them. Raises `ProviderRejected`."""
    try:
        ranges = [(section_id, span.split("-")) for section_id, span in (part.split(":") for part in rows or [])]
        return {
            "seats": seats or [],
            "rows": [{"section_id": s, "rows": [int(span[0]), int(span[-1])]} for s, span in ranges],
            "ga": [{"section_id": s, "quantity": int(n)} for s, n in (part.split(":") for part in ga or [])],
        }
    except ValueError as unreadable:
        raise Refused("Rows are written as A:1-3, places of a GA section as GA1:20.") from unreadable


@app.command("show")
def show(event_id: EventId, url: Url = None, data_dir: DataDir = DATA_DIR) -> None:
    """Show the stock report, by section; and what opens when."""
    report = _ask(url, data_dir, "GET", _path(event_id, "stock"))
    table = Table("section", *COLUMNS, "kept aside by", title=f"{event_id} ({report['currency']})")
    for section in report["sections"]:
        aside = ", ".join(f"{name} {n}" for name, n in section["kept_aside_by"].items())
        table.add_row(section["section_id"], *(str(section[name]) for name in COLUMNS), aside)
    table.add_section()
    table.add_row("all", *(str(report["total"][name]) for name in COLUMNS), "")
    out.print(table)
    for allotment in report["allotments"]:
        state = f"open since {allotment['opened_at']}" if allotment["opened_at"] else f"opens {_when(allotment)}"
        out.print(f"{allotment['allotment_id']}  {allotment['kind']}  {allotment['name']}  {state}", style="dim")


def _when(allotment: dict[str, Any]) -> str:
    return str(allotment["opens_at"] or "by hand")


def _aside(verb: Literal["block", "unblock"], sentence: str) -> None:
    @app.command(verb, help=sentence)
    def act(
        event_id: EventId, seat: Seats = None, rows: Rows = None, ga: Ga = None, reason: Reason = None,
        url: Url = None, data_dir: DataDir = DATA_DIR,
    ) -> None:  # fmt: skip
        body = {**_places(seat, rows, ga), "reason": reason}
        _say(event_id, verb, _ask(url, data_dir, "POST", _path(event_id, "seats", verb), body))


_aside("block", "Take seats or places out of the sale; all of them or, if one is held or sold, none.")
_aside("unblock", "Put blocked seats or places on sale again.")


@app.command("open")
def open_allotment(
    event_id: EventId,
    allotment_id: Annotated[str, typer.Argument(metavar="ALLOTMENT_ID")],
    reason: Reason = None,
    url: Url = None,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Release an allotment now; the line calls again if it had stopped."""
    path = _path(event_id, "allotments", allotment_id, "open")
    _say(event_id, "open", _ask(url, data_dir, "POST", path, {"reason": reason}))


@app.command("resize")
def resize(
    event_id: EventId,
    section_id: Annotated[str, typer.Argument(metavar="SECTION_ID")],
    capacity: Annotated[int, typer.Argument(min=0)],
    reason: Reason = None,
    url: Url = None,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Give a GA section another capacity; never below what is held, sold and blocked."""
    body = {"capacity": capacity, "reason": reason}
    _say(event_id, "resize", _ask(url, data_dir, "POST", _path(event_id, "sections", section_id, "resize"), body))


@app.command("export")
def export(
    event_id: EventId,
    what: Annotated[Literal["seats", "sales"], typer.Argument()],
    file: Annotated[Path, typer.Argument(help="Where to write the CSV; not over another file.")],
    url: Url = None,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Write every seat, or every sale, as CSV."""
    download(url, data_dir, _path(event_id, f"{what}.csv"), file)
    out.print(f"{event_id}: {what} written to {file}")


def _say(event_id: str, verb: str, done: dict[str, Any]) -> None:
    out.print(f"{event_id}: {verb}" if done["changed"] else f"{event_id}: nothing to change")
