"""What reports add to groups of the command line: settlement, hold times, exports of orders, stock and tickets."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.markup import escape
from rich.table import Table

from onsale.atomic_file import atomic_write
from onsale.cli.context import EventId, download, for_suite, out, with_admin

if TYPE_CHECKING:
    from features.reports import schemas

BAR_CHARACTERS = 30
PERCENTILES = ("50", "75", "90", "95", "99", "100")
CsvFile = Annotated[Path, typer.Argument(metavar="FILE", help="The CSV file to write; it must not exist yet.")]


@for_suite
def export_orders(event_id: EventId, file: CsvFile) -> None:
    """Export every order of an event as CSV, a line for each seat or GA section."""
    download("/admin/orders/export.csv", file, {"event_id": event_id})
    out.print(f"{event_id}: orders written to {file}")


@for_suite
def export_stock(
    event_id: EventId,
    what: Annotated[Literal["seats", "sales"], typer.Argument(help="What to write: seats or sales.")],
    file: CsvFile,
) -> None:
    """Export every seat, or every sale, as CSV.

    Example: onsale stock export arena-2026 seats seats.csv
    """
    download(f"/admin/inventory/events/{event_id}/{what}.csv", file)
    out.print(f"{event_id}: {what} written to {file}")


@for_suite
def list_tickets(
    event_id: EventId,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write, readable by you alone.")],
) -> None:
    """Download the tickets of an event, void ones included, for scanners without a network.

    Example: onsale tickets list arena-2026 tickets.json
    """
    answer = with_admin(lambda admin: admin.list_scanner_tickets(event_id))
    atomic_write(file, answer.model_dump_json())
    void = sum(ticket.status == "void" for ticket in answer.tickets)
    out.print(f"{event_id}: {len(answer.tickets)} tickets, {void} of them void")


@for_suite
def settlement(
    first: Annotated[str, typer.Option("--from", help="The first day, such as 2027-03-05.")],
    last: Annotated[str, typer.Option("--to", help="The last day, included.")],
    tz: Annotated[str, typer.Option(help="The time zone of the days, such as Europe/Berlin.")] = "UTC",
    compare: Annotated[bool, typer.Option("--compare", help="Compare with the providers' own lists.")] = False,
) -> None:
    """Show charges and refunds by day, provider and price type. Exit code 1 if a provider's list differs from ours.

    Example: onsale order settlement --from 2027-03-01 --to 2027-03-31 --tz Europe/Berlin --compare
    """
    report = with_admin(lambda admin: admin.read_settlement(since=first, until=last, tz=tz, compare=compare))
    table = Table(
        "day", "provider", "currency", "charges", "charged", "refunds", "refunded", "of it outside", "disputes",
        "withdrawn", "reinstated", "net", title=tz,
    )  # fmt: skip
    for day in report.days:
        table.add_row(day.day, *_sums(day))
    table.add_section()
    for total in report.totals:
        table.add_row("all", *_sums(total))
    out.print(table)
    if report.types:
        out.print(_by_type(report.types))
    found = {name: each for side in report.compared for name, each in _differences(side).items()}
    for name, charges in found.items():
        out.print(f"{name}: {charges}")
    if found:
        raise typer.Exit(1)


def _sums(row: "schemas.SettlementSum") -> list[str]:
    return [str(value) for name, value in row if name != "day"]


def _by_type(rows: "Sequence[schemas.TypeSettlement]") -> Table:
    table = Table(
        "event", "price type", "currency", "tickets", "charged", "returned", "refunded", "withdrawn", "reinstated",
        "net", title="by event and price type",
    )  # fmt: skip
    before = rows[0].event_id
    for row in rows:
        if row.event_id != before:
            table.add_section()
        before, sums = row.event_id, [str(value) for name, value in row if name not in ("event_id", "type_id", "name")]
        table.add_row(row.event_id or "other events", escape(row.name or "-"), *sums)
    return table


def _differences(side: "schemas.ProviderComparison") -> dict[str, str]:
    kinds: dict[str, Sequence[schemas.ComparedCharge]] = {
        "missing in our books": side.missing,
        "unknown to the provider": side.extra,
        "of another amount": side.different,
        "refunded or disputed at the provider, not yet in our books": side.moved,
    }
    return {
        f"{side.provider}, {kind}": ", ".join(charge.charge_ref for charge in charges)
        for kind, charges in kinds.items()
        if charges
    }


@for_suite
def hold_times(event_id: EventId) -> None:
    """Show how long fans take from hold to payment, who came back after losing a hold, and a suggested hold_ttl_s."""
    report = with_admin(lambda admin: admin.read_hold_times(event_id))
    out.print(_percentiles(report))
    out.print(_histogram(report.to_payment.histogram))
    out.print(_returning(report.returning))
    out.print(_suggestion(report.suggestion))
    if report.arms:
        out.print(_arms(report))


def _percentiles(report: "schemas.HoldTimesReport") -> Table:
    table = Table("from hold to", "holds", *(f"p{p}" if p != "100" else "last" for p in PERCENTILES))
    table.title = f"{report.event_id}: {report.holds} holds of {report.fans} fans"
    for title, times in (("payment begun", report.to_payment), ("confirmed", report.to_confirmed)):
        cells = [f"{times.percentiles_s[p]:g} s" if times.percentiles_s else "" for p in PERCENTILES]
        table.add_row(title, str(times.holds), *cells)
    return table


def _histogram(buckets: "list[schemas.HistogramBucket]") -> Table:
    most = max((bucket.holds for bucket in buckets), default=0) or 1
    last = max((i for i, bucket in enumerate(buckets) if bucket.holds), default=-1)
    table = Table("hold to payment begun", "holds", "", show_lines=False)
    for bucket in buckets[: last + 1]:
        to = f"{bucket.to_s} s" if bucket.to_s is not None else "…"
        bar = "█" * round(BAR_CHARACTERS * bucket.holds / most)
        table.add_row(f"{bucket.from_s} to {to}", str(bucket.holds), bar)
    return table


def _returning(fans: "schemas.ReturningHolders") -> str:
    if fans.share is None:
        return "No hold has ended unpaid."
    counts = f"{fans.left} fans had a hold end unpaid; {fans.returned} held again"
    return f"{counts} ({_percent(fans.share)}), {fans.bought} of them bought."


def _suggestion(found: "schemas.HoldTtlSuggestion") -> str:
    if found.hold_ttl_s is None:
        return f"No suggestion yet: {found.buyers} bought, it takes {found.buyers_min}."
    kept = f"{found.kept_percent} % of {found.buyers} buyers had begun to pay"
    late = f"{found.late_percent:g} % came late or extended; those who needed longer still are not seen"
    return f"[bold]hold_ttl_s: {found.hold_ttl_s}[/] would do (now {found.now_s}): by then {kept}. {late}."


def _arms(report: "schemas.HoldTimesReport") -> Table:
    table = Table("arm", "hold_ttl_s", "fans", "bought", "conversion (95 %)", "not counted yet", title="Two arms")
    for arm in report.arms:
        conversion = _percent(arm.conversion) if arm.conversion else ""
        table.add_row(*map(str, (arm.arm, arm.hold_ttl_s, arm.fans, arm.bought, conversion, arm.open)))
    more = report.b_minus_a
    table.caption = f"b minus a: {_percent(more)}: {more.verdict}" if more else "Too early to compare."
    return table


def _percent(estimate: "schemas.ShareEstimate") -> str:
    return f"{estimate.value:.1%}, {estimate.low:.1%} to {estimate.high:.1%}"
