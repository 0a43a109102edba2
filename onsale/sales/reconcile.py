"""`onsale reconcile`: compare gate and ledger now, see what was found and done, approve what cancels tickets."""

import time
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.table import Table

from onsale.commands.context import DATA_DIR, DataDir, EventId, Url, ask, out

AGE_S = 5.5
app = typer.Typer(no_args_is_help=True, help="Gate against ledger, and the ledger against itself.")
Reason = Annotated[str, typer.Option("--reason", help="Kept with the decision.")]


@app.command()
def now(event_id: EventId, url: Url = None, data_dir: DataDir = DATA_DIR) -> None:
    """Look, and if something differs look again after five seconds: what is still the same is set right."""
    path = f"/admin/inventory/events/{event_id}/reconcile"
    said: dict[str, int] = ask(url, data_dir, lambda admin: admin.call("POST", path))
    if said["differences"]:
        out.print(f"{said['differences']} differences; looking again in {AGE_S:g} s", style="dim")
        time.sleep(AGE_S)
        said = ask(url, data_dir, lambda admin: admin.call("POST", path))
    out.print(f"{event_id}: {said['differences']} differences, {said['old']} lasting, {said['corrected']} corrected")


@app.command()
def show(event_id: EventId, url: Url = None, data_dir: DataDir = DATA_DIR) -> None:
    """List drift and oversell findings of an event. Exit code 1 if something waits for a person."""
    path = f"/admin/inventory/events/{event_id}/reconcile"
    report: dict[str, Any] = ask(url, data_dir, lambda admin: admin.call("GET", path))
    table = Table("what", "said", "should be", "since", "done", title=f"{event_id}: what differed")
    for row in (*report["watched"], *report["found"]):
        table.add_row(row["what"], row["seen"], row["should_be"], _time(row["since"]), row.get("done", "watched"))
    out.print(table)
    cases = Table("section", "too many", "%", "status", "buffer", "paper", "given back", "by", title="Oversold")
    for case in report["oversell"]:
        place = case["section_id"] + (f" seat {case['position']}" if case["position"] >= 0 else "")
        numbers = (case["excess"], f"{case['percent']:.1f}", case["status"], case["from_buffer"], case["on_paper"])
        cases.add_row(place, *map(str, numbers), str(len(case["returns"])), case["decided_by"] or "policy")
    out.print(cases)
    if any(case["status"] == "waiting" for case in report["oversell"]):
        raise typer.Exit(1)


@app.command()
def approve(event_id: EventId, reason: Reason, url: Url = None, data_dir: DataDir = DATA_DIR) -> None:
    """Cancel and refund the latest buyers of everything that was oversold and waits for a person."""
    path = f"/admin/inventory/events/{event_id}/oversell/approve"
    said = ask(url, data_dir, lambda admin: admin.call("POST", path, {"reason": reason}))
    out.print(f"{event_id}: {len(said['cancelled'])} reservations are given back and refunded")


def _time(at: str) -> str:
    return datetime.fromisoformat(at).strftime("%H:%M:%S")
