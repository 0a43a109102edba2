"""`onsale reconcile`: compare the stock in Redis with PostgreSQL, list differences, approve what cancels tickets."""

import time

import typer
from rich.table import Table

from onsale.cli.context import AdminCommands, EventId, Reason, RequiredReason, call_admin, out
from shared.contracts.admin import inventory

LASTING_AFTER_S = 5.5  # a difference is corrected when it is found again after five seconds
app = AdminCommands(help="Compare the stock in Redis with PostgreSQL, list differences and oversold tickets.")


@app.command()
def now(event_id: EventId, reason: Reason = None) -> None:
    """Compare now and, if something differs, again after five seconds. Differences that last are corrected."""
    result = call_admin(inventory.RECONCILE, {"reason": reason}, event_id=event_id)
    if result.differences:
        out.print(f"{result.differences} differences; comparing again in {LASTING_AFTER_S:g} s", style="dim")
        time.sleep(LASTING_AFTER_S)
        result = call_admin(inventory.RECONCILE, {"reason": reason}, event_id=event_id)
    out.print(f"{event_id}: {result.differences} differences, {result.old} lasting, {result.corrected} corrected")


@app.command()
def show(event_id: EventId) -> None:
    """List drift and oversell findings of an event. Exit code 1 if something waits for approval."""
    report = call_admin(inventory.LIST_DRIFT, event_id=event_id)
    table = Table("what", "is", "should be", "since", "done", title=f"{event_id}: what differed")
    for row in (*report.watched, *report.found):
        done = row.done if isinstance(row, inventory.RecordedDrift) else "watched"
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


@app.command()
def approve(event_id: EventId, reason: RequiredReason) -> None:
    """Approve oversell cases: cancel and refund the latest buyers of oversold tickets."""
    done = call_admin(inventory.APPROVE_OVERSELL, {"reason": reason}, event_id=event_id)
    out.print(f"{event_id}: {len(done.cancelled)} reservations are returned and refunded")
