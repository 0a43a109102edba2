"""`onsale stock`: show an event's stock, change it while it sells; and what `onsale reconcile` gets: the list of
differences and oversold tickets, and the approval of what cancels tickets.
"""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from onsale.cli.context import (
    AdminCommands,
    EventId,
    Reason,
    RequiredReason,
    add_action,
    for_suite,
    out,
    rfc3339,
    with_admin,
)
from onsale.errors import OperatorError

if TYPE_CHECKING:
    from features.stock.schemas import AllotmentReport, StockChanged, StockCounts, StockReport

app = AdminCommands(help="Show and change the stock of an event while it sells.")
Seats = Annotated[list[str] | None, typer.Option("--seat", help="A seat, such as A-1-2; may repeat.")]
Rows = Annotated[
    list[str] | None, typer.Option("--rows", help="Rows of a section by their labels, such as A:1-3; may repeat.")
]
Ga = Annotated[list[str] | None, typer.Option("--ga", help="Tickets of a GA section, such as GA1:20; may repeat.")]
AllotmentId = Annotated[str, typer.Argument(metavar="ALLOTMENT_ID", help="The allotment's id.")]
COLUMNS = ("capacity", "available", "reserved", "held", "sold", "blocked", "kept_aside", "revenue_minor")


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
    """Show the stock by section, and of each allotment what is left, who may buy it, and when it opens."""
    report = with_admin(lambda admin: admin.read_stock(event_id))
    table = Table("section", *COLUMNS, "kept aside by", title=f"{event_id} ({report.currency})")
    for section in report.sections:
        allotted = ", ".join(f"{name} {n}" for name, n in section.kept_aside_by.items())
        table.add_row(section.section_id, *_counts(section), allotted)
    table.add_section()
    table.add_row("all", *_counts(report.total), "")
    out.print(table)
    if report.traits:
        out.print(_traits(report))
        out.print(_released(report), style="dim")
    for allotment in report.allotments:
        opens = f"opens {rfc3339(allotment.opens_at) or 'by hand'}"
        state = f"open since {rfc3339(allotment.opened_at)}" if allotment.opened_at else opens
        out.print(
            f"{allotment.allotment_id}  {allotment.kind}  {allotment.name}  {state}{_sales(allotment)}", style="dim"
        )


def _sales(allotment: "AllotmentReport") -> str:
    """What is sold of an allotment by code or lane, and by which."""
    if not allotment.codes and not allotment.lanes:
        return ""
    by = [f"{len(allotment.codes)} codes"] * bool(allotment.codes)
    by += [f"lanes {', '.join(map(str, allotment.lanes))}"] * bool(allotment.lanes)
    return f"  by {' and '.join(by)}: {allotment.available} available, {allotment.held} held, {allotment.sold} sold"


def _traits(report: "StockReport") -> Table:
    table = Table("places", "section", "in all", "available", "held", "sold")
    for section_id, traits in (*((s.section_id, s.traits) for s in report.sections), ("all", report.traits)):
        for trait, counts in traits.items():
            numbers = (counts.capacity, counts.available, counts.held, counts.sold)
            table.add_row(trait.replace("_", " "), section_id, *map(str, numbers))
    return table


def _released(report: "StockReport") -> str:
    what = "wheelchair and companion places are offered to everybody"
    if report.accessible_released_at:
        return f"{what} since {rfc3339(report.accessible_released_at)}"
    at = report.accessible_release_at
    return f"{what} {'from ' + str(rfc3339(at)) + ' on' if at else 'when an operator releases them'}"


def _counts(stock: "StockCounts") -> list[str]:
    return [str(getattr(stock, name)) for name in COLUMNS]


def _done(verb: str, *, answer: "StockChanged", event_id: str, **_: Any) -> str:
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


@app.command("move")
def move(
    event_id: EventId,
    from_allotment: Annotated[
        str | None, typer.Option("--from", metavar="ALLOTMENT_ID", help="Where they are. Default: general sale.")
    ] = None,
    to_allotment: Annotated[
        str | None, typer.Option("--to", metavar="ALLOTMENT_ID", help="Where they go. Default: general sale.")
    ] = None,
    seat: Seats = None,
    rows: Rows = None,
    ga: Ga = None,
    reason: Reason = None,
) -> None:
    """Move seats or GA tickets between allotments and general sale: all of them or, if one is held or sold, none."""
    body = {
        **_places(seat, rows, ga), "from_allotment": from_allotment, "to_allotment": to_allotment, "reason": reason
    }  # fmt: skip
    answer = with_admin(lambda admin: admin.move_stock(event_id, body))
    out.print(_done("move", answer=answer, event_id=event_id))


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


add_action(
    app, "release-accessible", "release_accessible", {"event_id": EventId},
    partial(_done, "release-accessible"),
    about="Offer wheelchair and companion places to everybody when no others are left.",
)  # fmt: skip


@for_suite
def show_drift(event_id: EventId) -> None:
    """List drift and oversell findings of an event. Exit code 1 if something waits for approval."""
    report = with_admin(lambda admin: admin.list_drift(event_id))
    table = Table("what", "is", "should be", "since", "done", title=f"{event_id}: what differed")
    for row in (*report.watched, *report.found):
        done = getattr(row, "done", "watched")
        table.add_row(row.what, row.seen, row.should_be, f"{row.since:%H:%M:%S}", done)
    out.print(table)
    cases = Table("section", "too many", "%", "status", "buffer", "paper", "returned", "by", title="Oversold")
    for case in report.oversell:
        place = case.section_id + (f" seat {case.position}" if case.position >= 0 else "")
        numbers = (case.excess, f"{case.percent:.1f}", case.status, case.from_buffer, case.on_paper)
        cases.add_row(place, *map(str, numbers), str(len(case.returns)), case.decided_by or "policy")
    out.print(cases)
    if any(case.status == "waiting" for case in report.oversell):
        raise typer.Exit(1)


@for_suite
def approve(event_id: EventId, reason: RequiredReason) -> None:
    """Approve oversell cases: cancel and refund the latest buyers of oversold tickets."""
    answer = with_admin(lambda admin: admin.approve_oversell(event_id, {"reason": reason}))
    out.print(f"{event_id}: {len(answer.cancelled)} reservations are returned and refunded")
