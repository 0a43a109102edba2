"""`onsale tickets`: verify tickets as a scanner does. That needs no suite: keys and list are files."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import httpx
import orjson
import typer
from rich.markup import escape

from onsale.cli.context import out
from onsale.errors import OperatorError
from shared.security.tickets import BadTicket, TicketCode, published_keys, read_ticket, require_rotating_code
from shared.security.tokens import unb64

KEYS_DEADLINE_S, KEYS_MAX_BYTES = 3, 256 * 1024
LIST_MAX_BYTES = 256 * 1024 * 1024
app = typer.Typer(no_args_is_help=True, help="Verify tickets and download the ticket list for scanners.")
Code = Annotated[str, typer.Argument(help="The text of the QR code.")]
Keys = Annotated[str, typer.Option("--keys", help="File with, or address of, /.well-known/ticket-keys.json.")]
ListFile = Annotated[Path | None, typer.Option("--tickets", help="The file that `onsale tickets list` wrote.")]


@app.command()
def verify(code: Code, keys: Keys, tickets: ListFile = None) -> None:
    """Verify a ticket's signature and, with a ticket list, that it is not void. Exit code 1 if it is refused."""
    try:
        public = published_keys(_keys(keys))
    except ValueError as broken:
        raise OperatorError(f"{keys}: {broken}.") from broken
    try:
        ticket = read_ticket(public, code)
        listed = _require_listed(ticket, code, tickets)
    except BadTicket as bad:
        out.print(f"[red]refused[/]: {bad}", soft_wrap=True)
        raise typer.Exit(1) from None
    place = ", ".join(filter(None, (ticket.seat_id or ticket.section_id, ticket.type_id)))
    proof = f"; to be shown: {listed['proof']}" if listed.get("proof") else ""
    what = f"{ticket.event_id}, {place}, order {ticket.order}, ticket {ticket.ticket_id}{proof}"
    out.print(f"[green]good[/]: {escape(what)}", soft_wrap=True)


def _keys(where: str) -> bytes:
    try:
        if where.startswith(("http://", "https://")):
            with httpx.Client(trust_env=False, timeout=KEYS_DEADLINE_S) as client:
                return client.get(where).raise_for_status().content[:KEYS_MAX_BYTES]
        return Path(where).read_bytes()[:KEYS_MAX_BYTES]
    except (OSError, httpx.HTTPError) as unreadable:
        raise OperatorError(f"{where}: {unreadable}") from unreadable


def _require_listed(ticket: TicketCode, code: str, path: Path | None) -> dict[str, Any]:
    """The ticket as the list has it; nothing of one that was issued since."""
    listed = (_listed(path).get((ticket.event_id, ticket.ticket_id)) if path else None) or {}
    if path and not listed and ticket.window_s:
        raise BadTicket("it is not in the list; fetch a newer one")
    if listed and listed["status"] == "void":
        at = datetime.fromisoformat(listed["void_at"]).astimezone(UTC)
        raise BadTicket(f"it is void since {at:%Y-%m-%d %H:%M}Z ({listed['void_reason']})")
    if not ticket.window_s:
        return listed
    if not listed:
        raise BadTicket("its code changes with time: give the ticket list (--tickets) to check it")
    require_rotating_code(ticket, unb64(listed["secret"]), code, at_s=time.time())
    return listed


def _listed(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    try:
        if path.stat().st_size > LIST_MAX_BYTES:
            raise OperatorError(f"{path}: larger than {LIST_MAX_BYTES // 1024 // 1024} MiB.")
        document = orjson.loads(path.read_bytes())
        return {(document["event_id"], ticket["ticket_id"]): ticket for ticket in document["tickets"]}
    except OSError as unreadable:
        raise OperatorError(f"{path}: {unreadable.strerror}.") from unreadable
    except (ValueError, KeyError, TypeError) as broken:
        raise OperatorError(f"{path}: not a list of tickets.") from broken
