"""`onsale stock`: show an event's stock and hold times, change the stock while it sells, export it."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.table import Table

from onsale.cli.context import AdminCommands, EventId, Reason, add_action, download, out, rfc3339, with_admin
from onsale.errors import OperatorError

if TYPE_CHECKING:
    from shared.contracts.admin import inventory

app = AdminCommands(help="Show and change the stock of an event while it sells.")
Seats = Annotated[list[str] | None, typer.Option("--seat", help="A seat, such as A-1-2; may repeat.")]
Rows = Annotated[
    list[str] | None, typer.Option("--rows", help="Rows of a section by their labels, such as A:1-3; may repeat.")
]
Ga = Annotated[list[str] | None, typer.Option("--ga", help="Tickets of a GA section, such as GA1:20; may repeat.")]
AllotmentId = Annotated[str, typer.Argument(metavar="ALLOTMENT_ID", help="The allotment's id.")]
COLUMNS = ("capacity", "available", "held", "sold", "blocked", "kept_aside", "revenue_minor")
BAR_CHARACTERS = 30
PERCENTILES = ("50", "75", "90", "95", "99", "100")


def _places(seats: list[str] | None, rows: list[str] | None, ga: list[str] | None) -> dict[str, Any]:
    """The body of the API's block and unblock calls. Raises `OperatorError`."""
    try:
        ranges = [(section_id, span.split("-")) for section_id, span in (part.split(":") for part in rows or [])]
        return {
            "seats": seats or [],
            "rows": [{"section_id": s, "rows": [_row(span[0]), _row(span[-1])]} for s, span in ranges],
            "ga": [{"section_id": s, "quantity": int(n)} for s, n in (part.split(":") for part in ga or [])],
        }
    except ValueError as unreadable:
        raise OperatorError("Rows are written as A:1-3, tickets of a GA section as GA1:20.") from unreadable


def _row(label: str) -> int | str:
    """A row by its label; one in digits is also what older services take."""
    return int(label) if label.isdecimal() and label[0] != "0" else label


@app.command("show")
def show(event_id: EventId) -> None:
    """Show the stock by section, and when each allotment opens."""
    report = with_admin(lambda admin: admin.read_stock(event_id))
    table = Table("section", *COLUMNS, "kept aside by", title=f"{event_id} ({report.currency})")
    for section in report.sections:
        kept_aside = ", ".join(f"{name} {n}" for name, n in section.kept_aside_by.items())
        table.add_row(section.section_id, *_counts(section), kept_aside)
    table.add_section()
    table.add_row("all", *_counts(report.total), "")
    out.print(table)
    for allotment in report.allotments:
        opens = f"opens {rfc3339(allotment.opens_at) or 'by hand'}"
        state = f"open since {rfc3339(allotment.opened_at)}" if allotment.opened_at else opens
        out.print(f"{allotment.allotment_id}  {allotment.kind}  {allotment.name}  {state}", style="dim")


def _counts(stock: "inventory.StockCounts") -> list[str]:
    return [str(getattr(stock, name)) for name in COLUMNS]


def _done(verb: str, *, answer: "inventory.StockChanged", event_id: str, **_: Any) -> str:
    return f"{event_id}: {verb}" if answer.changed else f"{event_id}: nothing to change"


def _add_action(verb: str, help_text: str) -> None:
    @app.command(verb, help=help_text)
    def act(
        event_id: EventId, seat: Seats = None, rows: Rows = None, ga: Ga = None, reason: Reason = None,
    ) -> None:  # fmt: skip
        body = {**_places(seat, rows, ga), "reason": reason}
        answer = with_admin(lambda admin: admin.call(f"{verb}_places", body, event_id=event_id))
        out.print(_done(verb, answer=answer, event_id=event_id))


_add_action("block", "Block seats or GA tickets: all of them or, if one is held or sold, none.")
_add_action("unblock", "Put blocked seats or GA tickets on sale again.")


add_action(
    app, "open", "open_allotment", {"event_id": EventId, "allotment_id": AllotmentId},
    partial(_done, "open"), about="Put an allotment on sale now; the line goes on with its calls if it had sold out.",
)  # fmt: skip
add_action(
    app, "resize", "resize_section",
    {
        "event_id": EventId,
        "section_id": Annotated[str, typer.Argument(metavar="SECTION_ID", help="The section, as in the event file.")],
        "capacity": Annotated[int, typer.Argument(min=0, help="How many places it has from now on.")],
    },
    partial(_done, "resize"), about="Change the capacity of a GA section, never below what is held, sold and blocked.",
)  # fmt: skip


@app.command("export")
def export(
    event_id: EventId,
    what: Annotated[Literal["seats", "sales"], typer.Argument(help="What to write: seats or sales.")],
    file: Annotated[Path, typer.Argument(help="The CSV file to write; it must not exist yet.")],
) -> None:
    """Export every seat, or every sale, as CSV.

    Example: onsale stock export arena-2026 seats seats.csv
    """
    download(f"/admin/inventory/events/{event_id}/{what}.csv", file)
    out.print(f"{event_id}: {what} written to {file}")


@app.command("hold-times")
def hold_times(event_id: EventId) -> None:
    """Show how long fans take from hold to payment, who came back after losing a hold, and a suggested hold_ttl_s."""
    report = with_admin(lambda admin: admin.read_hold_times(event_id))
    out.print(_percentiles(report))
    out.print(_histogram(report.to_payment.histogram))
    out.print(_returning(report.returning))
    out.print(_suggestion(report.suggestion))
    if report.arms:
        out.print(_arms(report))


def _percentiles(report: "inventory.HoldTimesReport") -> Table:
    table = Table("from hold to", "holds", *(f"p{p}" if p != "100" else "last" for p in PERCENTILES))
    table.title = f"{report.event_id}: {report.holds} holds of {report.fans} fans"
    for title, times in (("payment begun", report.to_payment), ("confirmed", report.to_confirmed)):
        cells = [f"{times.percentiles_s[p]:g} s" if times.percentiles_s else "" for p in PERCENTILES]
        table.add_row(title, str(times.holds), *cells)
    return table


def _histogram(buckets: "list[inventory.HistogramBucket]") -> Table:
    most = max((bucket.holds for bucket in buckets), default=0) or 1
    last = max((i for i, bucket in enumerate(buckets) if bucket.holds), default=-1)
    table = Table("hold to payment begun", "holds", "", show_lines=False)
    for bucket in buckets[: last + 1]:
        to = f"{bucket.to_s} s" if bucket.to_s is not None else "…"
        bar = "█" * round(BAR_CHARACTERS * bucket.holds / most)
        table.add_row(f"{bucket.from_s} to {to}", str(bucket.holds), bar)
    return table


def _returning(fans: "inventory.ReturningHolders") -> str:
    if fans.share is None:
        return "No hold has ended unpaid."
    counts = f"{fans.left} fans had a hold end unpaid; {fans.returned} held again"
    return f"{counts} ({_percent(fans.share)}), {fans.bought} of them bought."


def _suggestion(found: "inventory.HoldTtlSuggestion") -> str:
    if found.hold_ttl_s is None:
        return f"No suggestion yet: {found.buyers} bought, it takes {found.buyers_min}."
    kept = f"{found.kept_percent} % of {found.buyers} buyers had begun to pay"
    late = f"{found.late_percent:g} % came late or extended; those who needed longer still are not seen"
    return f"[bold]hold_ttl_s: {found.hold_ttl_s}[/] would do (now {found.now_s}): by then {kept}. {late}."


def _arms(report: "inventory.HoldTimesReport") -> Table:
    table = Table("arm", "hold_ttl_s", "fans", "bought", "conversion (95 %)", "not counted yet", title="Two arms")
    for arm in report.arms:
        conversion = _percent(arm.conversion) if arm.conversion else ""
        table.add_row(*map(str, (arm.arm, arm.hold_ttl_s, arm.fans, arm.bought, conversion, arm.open)))
    more = report.b_minus_a
    table.caption = f"b minus a: {_percent(more)}: {more.verdict}" if more else "Too early to compare."
    return table


def _percent(estimate: "inventory.ShareEstimate") -> str:
    return f"{estimate.value:.1%}, {estimate.low:.1%} to {estimate.high:.1%}"
