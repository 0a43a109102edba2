"""`onsale flow` and `onsale report`: how fans came through a sale, live as tables and afterwards as a page to send."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from features.reports.page import percent, seconds, write_page
from features.reports.sale import Flow, read_flow, read_sale
from onsale.cli.context import EventId, for_suite, out, with_admin
from onsale.errors import OperatorError
from shared.rules.sell_out import ORDERS_MIN, SECONDS_MIN


@for_suite
def flow(event_id: EventId) -> None:
    """Show how many fans joined, were called, held, ordered and bought; waits, what is pending, the sell-out.

    Example: onsale flow arena-2026
    """
    now = with_admin(lambda admin: read_flow(admin, event_id))
    out.print(_funnel(event_id, now))
    out.print(_pending(now))
    if now.orders.declines:
        table = Table("declined because", "payments")
        for reason, declines in now.orders.declines.items():
            table.add_row(reason, str(declines))
        out.print(table)
    out.print(_sections(now))
    out.print(sell_out(now))


def _funnel(event_id: str, now: Flow) -> Table:
    table = Table("step", "fans", "of the step before", "lost", "of all", title=f"{event_id}: from joining to buying")
    for step in now.funnel:
        fans, lost = str(step.fans), str(step.lost)
        table.add_row(step.name, fans, percent(step.of_previous), lost, percent(step.of_joined))
    return table


def _pending(now: Flow) -> Table:
    wait = now.line.wait
    table = Table("now", "", show_header=False)
    for name, value in (
        ("waiting, never called", str(now.line.waiting)),
        ("wait from joining to call, p50", seconds(wait.p50_s)),
        ("p95", seconds(wait.p95_s)),
        ("open holds", str(now.holds.by_status["pending_payment"])),
        ("oldest open hold", seconds(now.holds.oldest_hold_s)),
        ("oldest payment of a hold", seconds(now.holds.oldest_payment_s)),
        ("pending orders", str(now.orders.by_status["pending"])),
        ("oldest pending order", seconds(now.orders.oldest_pending_s)),
        ("orders whose next step is due", str(now.orders.due)),
    ):
        table.add_row(name, value)
    return table


def _sections(now: Flow) -> Table:
    table = Table("section", "on sale", "sold", "held", "left", "sold %")
    for section in now.holds.sections:
        numbers = (section.on_sale, section.sold, section.held, section.available)
        share = section.sold / section.on_sale if section.on_sale else None
        table.add_row(section.section_id, *map(str, numbers), percent(share))
    return table


def sell_out(now: Flow) -> str:
    """The forecast in a sentence."""
    found = now.forecast
    if found is None:
        return (
            f"Sell-out: no forecast; it needs {ORDERS_MIN} orders and {SECONDS_MIN} s of sales in the last 5 minutes."
        )
    if found.latest_s == 0:
        return "Sold out."
    latest = "but perhaps never" if found.latest_s is None else f"at the latest in {seconds(found.latest_s)}"
    return f"Sell-out: in about {seconds(found.expected_s)}, at the earliest in {seconds(found.earliest_s)}, {latest}."


@for_suite
def report(
    event_id: EventId,
    file: Annotated[Path, typer.Option("--out", "-o", help="The HTML file to write; it must not exist yet.")],
) -> None:
    """Write the report of a sale as one HTML file without scripts: to read, to print, to send to the promoter.

    Example: onsale report arena-2026 --out arena.html
    """
    sale = with_admin(lambda admin: read_sale(admin, event_id, failure=OperatorError))
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(write_page(sale))
    except OSError as unwritable:
        raise OperatorError(f"{file}: {unwritable.strerror}") from unwritable
    out.print(f"{event_id}: report written to {file}")
