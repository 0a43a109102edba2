"""`onsale promo`: promo codes of an event, made, listed and stopped, and who used them."""

from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from rich.table import Table

from onsale.commands.client import Refused
from onsale.commands.context import DATA_DIR, DataDir, EventId, Url, ask, out

app = typer.Typer(no_args_is_help=True, help="Promo codes: what they take off, how often, and who used them.")
Code = Annotated[str, typer.Argument(metavar="CODE", help="Upper and lower case are the same.")]
Reason = Annotated[str | None, typer.Option(help="Kept in the audit trail.")]
Page = Annotated[int, typer.Option(min=1)]
Time = Annotated[str | None, typer.Option(help="As 2027-01-31T12:00:00Z.")]


def _path(event_id: str, *parts: str) -> str:
    return "/".join((f"/admin/orders/events/{event_id}/promo-codes", *parts))


def _ask(url: str | None, data_dir: Path, method: str, path: str, body: Any = None) -> dict[str, Any]:
    return dict(ask(url, data_dir, lambda admin: admin.call(method, path, body)))


@app.command("add")
def add(
    event_id: EventId,
    code: Code,
    percent: Annotated[str | None, typer.Option(help="Takes so many percent off, as 12.5.")] = None,
    amount: Annotated[int | None, typer.Option(min=1, help="Takes so many minor units off the order.")] = None,
    uses: Annotated[int | None, typer.Option(min=1, help="Orders it is good for in all.")] = None,
    customer_uses: Annotated[int | None, typer.Option(min=1, help="Orders of one customer it is good for.")] = None,
    valid_from: Time = None,
    valid_until: Time = None,
    section: Annotated[list[str] | None, typer.Option(help="Only for tickets of this section; may repeat.")] = None,
    tickets: Annotated[int, typer.Option(min=1, help="So many of these tickets at least.")] = 1,
    reason: Reason = None,
    url: Url = None,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Create or replace a promo code. A stopped one is good again."""
    if (percent is None) == (amount is None):
        raise Refused("Say what it takes off: --percent or --amount.")
    body = {
        "percent": percent, "amount_minor": amount, "uses_max": uses, "customer_uses_max": customer_uses,
        "valid_from": _time(valid_from), "valid_until": _time(valid_until), "section_ids": section or [],
        "tickets_min": tickets, "reason": reason,
    }  # fmt: skip
    _say(event_id, _ask(url, data_dir, "PUT", _path(event_id, code), body), "ready")


def _time(text: str | None) -> str | None:
    """Raises `ProviderRejected`."""
    try:
        return text and datetime.fromisoformat(text).isoformat()
    except ValueError as unreadable:
        raise Refused(f"{text}: times are written as 2027-01-31T12:00:00Z.") from unreadable


@app.command("stop")
def stop(event_id: EventId, code: Code, reason: Reason = None, url: Url = None, data_dir: DataDir = DATA_DIR) -> None:
    """From now on the code takes nothing off; whoever ordered with it keeps it."""
    params = f"?{httpx.QueryParams({'reason': reason})}" if reason else ""
    _say(event_id, _ask(url, data_dir, "DELETE", _path(event_id, code) + params), "stopped")


def _say(event_id: str, done: dict[str, Any], what: str) -> None:
    out.print(f"{event_id}: {done['code']} {what if done['changed'] else 'is so already'}")


@app.command("list")
def list_codes(event_id: EventId, page: Page = 1, url: Url = None, data_dir: DataDir = DATA_DIR) -> None:
    """The codes of an event, and how often each is used."""
    found = _ask(url, data_dir, "GET", f"{_path(event_id)}?page={page}")["promo_codes"]
    table = Table(
        "code", "takes off", "uses", "a customer", "valid", "sections", "tickets", "stopped at", title=event_id
    )
    for code in found:
        table.add_row(code["code"], *_cells(code), code["stopped_at"] or "")
    out.print(table)


def _cells(code: dict[str, Any]) -> tuple[str, ...]:
    off = f"{code['percent']} %" if code["percent"] else str(code["amount_minor"])
    used = f"{code['uses']} of {code['uses_max']}" if code["uses_max"] else str(code["uses"])
    valid = f"{code['valid_from'] or ''} – {code['valid_until'] or ''}".strip(" –")
    return (
        off,
        used,
        str(code["customer_uses_max"] or ""),
        valid,
        " ".join(code["section_ids"]),
        str(code["tickets_min"]),
    )


@app.command("uses")
def list_uses(event_id: EventId, code: Code, page: Page = 1, url: Url = None, data_dir: DataDir = DATA_DIR) -> None:
    """Which orders took a code; those that ended unpaid gave their use back."""
    found = _ask(url, data_dir, "GET", f"{_path(event_id, code, 'uses')}?page={page}")["uses"]
    table = Table("order", "status", "counts", "at", title=f"{event_id} {code.upper()}")
    for use in found:
        table.add_row(use["reference"], use["status"], "yes" if use["counts"] else "given back", use["at"])
    out.print(table)
