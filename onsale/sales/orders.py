"""`onsale order`: find a purchase, see what happened to it, give money back, decide about a review, settle a day."""

import uuid
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

import typer
from rich.table import Column, Table

from onsale.commands.client import Refused
from onsale.commands.context import DATA_DIR, DataDir, EventId, Url, ask, out
from onsale.commands.downloads import download

app = typer.Typer(no_args_is_help=True, help="Find purchases, give money back, decide what waits for a person.")
Reference = Annotated[str, typer.Argument(metavar="REFERENCE", help="The order's reference.")]
Why = Annotated[str, typer.Option("--reason", help="Kept in the audit trail.")]
ToSale = Annotated[bool, typer.Option("--return-to-sale", help="Its tickets may be bought again.")]
Rate = Annotated[float | None, typer.Option(help="Orders per second.")]


def _call(url: str | None, data_dir: Path, method: str, path: str, body: Any = None, **named: Any) -> dict[str, Any]:
    return dict(ask(url, data_dir, lambda admin: admin.call(method, f"/admin/orders{path}", body, **named)))


@app.command("find")
def find(
    q: Annotated[str | None, typer.Argument(help="Reference, e-mail, part of a name, seat or charge.")] = None,
    event: Annotated[str | None, typer.Option(help="Of this event.")] = None,
    status: Annotated[str | None, typer.Option(help="In this status, as review.")] = None,
    after: Annotated[str | None, typer.Option(help="After this reference: the next page.")] = None,
    url: Url = None,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Orders, newest first."""
    asked = {"q": q, "event_id": event, "status": status, "after": after}
    query = urlencode({name: value for name, value in asked.items() if value is not None})
    found = _call(url, data_dir, "GET", f"?{query}")
    table = Table(Column("reference", no_wrap=True), "event", "status", "total", "refunded", "e-mail", "made")
    for order in found["orders"]:
        money = f"{order['total_minor']} {order['currency']}", str(order["refunded_minor"])
        made = order["customer"]["email"], order["created_at"]
        table.add_row(order["reference"], order["event_id"], order["status"], *money, *made)
    out.print(table)
    if found["next_after"]:
        out.print(f"more: --after {found['next_after']}", style="dim")


@app.command("show")
def show(reference: Reference, url: Url = None, data_dir: DataDir = DATA_DIR) -> None:
    """Show the timeline of an order."""
    told = _call(url, data_dir, "GET", f"/{reference}/timeline")
    order = told["order"]
    table = Table("at", "", "what", title=f"{reference}: {order['status']} {order['end_reason'] or ''}".strip())
    for row in told["timeline"]:
        rest = {name: value for name, value in row.items() if name not in ("at", "kind") and value not in (None, [])}
        table.add_row(row["at"], row["kind"], "  ".join(f"{name} {value}" for name, value in rest.items()))
    out.print(table)
    if order["may_be_resolved_by"]:
        out.print(f"A person must decide: {', '.join(order['may_be_resolved_by'])}")


@app.command("refund")
def refund(
    reference: Reference,
    reason: Why,
    amount: Annotated[int | None, typer.Option(min=1, help="In minor units; without it, all that is left.")] = None,
    seat: Annotated[list[str] | None, typer.Option("--seat", help="This ticket only; may be repeated.")] = None,
    ga: Annotated[list[str] | None, typer.Option("--ga", help="GA tickets only, as GA1:2; may be repeated.")] = None,
    return_to_sale: ToSale = False,
    key: Annotated[str | None, typer.Option(help="The same key again is the same refund.")] = None,
    url: Url = None,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Give money back: all of it, an amount, or for some tickets."""
    body: dict[str, Any] = {"reason": reason, "return_to_sale": return_to_sale}
    if amount is not None:
        body["amount_minor"] = amount
    if seat or ga:
        body["tickets"] = {"seats": seat or [], "ga": [_tickets(text) for text in ga or []]}
    key = key or uuid.uuid4().hex
    order = _call(url, data_dir, "POST", f"/{reference}/refund", body, key=key)
    back_minor = order["refunded_minor"] + order["refunding_minor"]
    _say(order, f"{back_minor} {order['currency']} back or on their way (key {key})")


def _tickets(text: str) -> dict[str, Any]:
    section_id, _, quantity = text.partition(":")
    if not quantity.isdigit():
        raise Refused("GA tickets are written as GA1:2.")
    return {"section_id": section_id, "quantity": int(quantity)}


@app.command("resolve")
def resolve(
    reference: Reference,
    decision: Annotated[Literal["confirm", "refund", "expire"], typer.Argument()],
    reason: Why,
    return_to_sale: ToSale = False,
    url: Url = None,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Resolve an order in review: it is sold, its money goes back, or it ends."""
    body = {"decision": decision, "reason": reason, "return_to_sale": return_to_sale}
    _say(_call(url, data_dir, "POST", f"/{reference}/resolve", body), f"{decision} decided")


def _act(verb: Literal["retry", "cancel"], sentence: str) -> None:
    @app.command(verb, help=sentence)
    def act(reference: Reference, reason: Why, url: Url = None, data_dir: DataDir = DATA_DIR) -> None:
        _say(_call(url, data_dir, "POST", f"/{reference}/{verb}", {"reason": reason}), verb)


_act("retry", "Make whatever is due for an order due now, and ask its provider again.")
_act("cancel", "Cancel an order that is not paid.")


@app.command("refund-event")
def refund_event(
    event_id: EventId,
    action: Annotated[Literal["start", "show", "pause", "resume"], typer.Argument()] = "show",
    reason: Why = "onsale order refund-event",
    rate: Rate = None,
    return_to_sale: ToSale = False,
    url: Url = None,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Refund an event; show its progress, pause or resume it."""
    path, method = f"/events/{event_id}/refund", "GET" if action == "show" else "POST"
    body: dict[str, Any] | None = None if action == "show" else {"reason": reason}
    if body is not None and action != "pause" and rate is not None:
        body["rate_per_s"] = rate
    if body is not None and action == "start":
        body["return_to_sale"] = return_to_sale
    job = _call(url, data_dir, method, path + (f"/{action}" if action in ("pause", "resume") else ""), body)
    out.print(f"{event_id}: {job['status']}, {job['rate_per_s']:g} a second, {job['asked']} refunds asked for, "
              f"{job['cancelled']} unpaid orders cancelled")  # fmt: skip
    out.print(f"orders: {_counts(job['orders'])}", style="dim")
    refunds = {status: f"{sums['count']} ({sums['amount_minor']})" for status, sums in job["refunds"].items()}
    out.print(f"refunds: {_counts(refunds)}", style="dim")


@app.command("export")
def export(
    event_id: EventId,
    file: Annotated[Path, typer.Argument(help="Where to write the CSV; not over another file.")],
    url: Url = None,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Write every order of an event as CSV, a line for each seat or section."""
    download(url, data_dir, f"/admin/orders/export.csv?{urlencode({'event_id': event_id})}", file)
    out.print(f"{event_id}: orders written to {file}")


@app.command("settlement")
def settlement(
    first: Annotated[str, typer.Option("--from", help="The first day, as 2027-03-05.")],
    last: Annotated[str, typer.Option("--to", help="The last day, included.")],
    tz: Annotated[str, typer.Option(help="Where days begin and end, as Europe/Berlin.")] = "UTC",
    compare: Annotated[bool, typer.Option("--compare", help="Against the providers' own lists.")] = False,
    url: Url = None,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Show settlement by provider and day. Exit code 1 if a provider's list differs from our books."""
    query = urlencode({"from": first, "to": last, "tz": tz, "compare": compare})
    report = _call(url, data_dir, "GET", f"/settlement?{query}")
    table = Table("day", "provider", "currency", "charges", "charged", "refunds", "refunded", "net", title=tz)
    columns = ("provider", "currency", "charges", "charged_minor", "refunds", "refunded_minor", "net_minor")
    for row in report["days"]:
        table.add_row(row["day"], *(str(row[name]) for name in columns))
    table.add_section()
    for row in report["totals"]:
        table.add_row("all", *(str(row[name]) for name in columns))
    out.print(table)
    found = {name: each for side in report.get("compared", []) for name, each in _differences(side).items()}
    for name, charges in found.items():
        out.print(f"{name}: {charges}")
    if found:
        raise typer.Exit(1)


def _differences(side: dict[str, Any]) -> dict[str, str]:
    kinds = {"missing": "missing in our books", "extra": "unknown to the provider", "different": "of another amount"}
    return {
        f"{side['provider']}, {words}": ", ".join(str(charge["charge_ref"]) for charge in side[kind])
        for kind, words in kinds.items()
        if side[kind]
    }


def _counts(counts: dict[str, Any]) -> str:
    return ", ".join(f"{n} {name}" for name, n in counts.items()) or "none"


def _say(order: dict[str, Any], done: str) -> None:
    out.print(f"{order['reference']}: {done}; now {order['status']}")
