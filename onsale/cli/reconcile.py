"""`onsale reconcile`: compare the stock in Redis with PostgreSQL, list differences, approve what cancels tickets."""

import time

import typer
from rich.table import Table

from onsale.cli.context import AdminCommands, EventId, Reason, add_action, out, with_admin

LASTING_AFTER_S = 5.5  # a difference is corrected when it is found again after five seconds
app = AdminCommands(help="Compare the stock in Redis with PostgreSQL, list differences and oversold tickets.")


@app.command()
def now(event_id: EventId, reason: Reason = None) -> None:
    """Compare now and, if something differs, again after five seconds. Differences that last are corrected."""
    result = with_admin(lambda admin: admin.reconcile(event_id, {"reason": reason}))
    if result.differences:
        out.print(f"{result.differences} differences; comparing again in {LASTING_AFTER_S:g} s", style="dim")
        time.sleep(LASTING_AFTER_S)
        result = with_admin(lambda admin: admin.reconcile(event_id, {"reason": reason}))
    out.print(f"{event_id}: {result.differences} differences, {result.old} lasting, {result.corrected} corrected")


@app.command()
def show(event_id: EventId) -> None:
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


add_action(
    app, "approve", "approve_oversell", {"event_id": EventId},
    lambda answer, event_id, **_: f"{event_id}: {len(answer.cancelled)} reservations are returned and refunded",
    about="Approve oversell cases: cancel and refund the latest buyers of oversold tickets.", reason=...,
)  # fmt: skip
