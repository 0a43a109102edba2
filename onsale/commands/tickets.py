"""`onsale tickets`: what a scanner does, by hand. Verifying asks nobody: keys and lists are files."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import httpx
import orjson
import typer

from onsale.commands.client import Refused
from onsale.commands.context import DATA_DIR, DataDir, EventId, Url, ask, out
from shared.security.jwks_client import DEADLINE_S, SET_MAX_BYTES, parse
from shared.security.tickets import BadTicket, TicketCode, read_ticket, require_beat
from shared.security.tokens import unb64

LIST_MAX_BYTES = 256 * 1024 * 1024
app = typer.Typer(no_args_is_help=True, help="Verify tickets, and fetch the list a scanner loads.")
Code = Annotated[str, typer.Argument(help="As the QR code has it.")]
Keys = Annotated[str, typer.Option("--keys", help="File or address of /.well-known/ticket-keys.json.")]
Listed = Annotated[Path | None, typer.Option("--tickets", help="What `onsale tickets list` wrote.")]


@app.command()
def verify(code: Code, keys: Keys, tickets: Listed = None) -> None:
    """Is this ticket good? With a list also: is it still? Exit code 1 if it is not."""
    try:
        public = {key.kid or "": key.key for key in parse(_keys(keys), ("EdDSA",))}
    except ValueError as broken:
        raise Refused(f"{keys}: {broken}.") from broken
    try:
        ticket = read_ticket(public, code)
        _require_listed(ticket, code, tickets)
    except BadTicket as bad:
        out.print(f"[red]refused[/]: {bad}", soft_wrap=True)
        raise typer.Exit(1) from None
    place = ticket.seat_id or ticket.section_id
    out.print(f"[green]good[/]: {ticket.event_id}, {place}, order {ticket.order}, ticket {ticket.ticket_id}")


@app.command("list")
def list_tickets(
    event_id: EventId,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it; it holds secrets if codes move.")],
    url: Url = None,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Write an event's tickets and which of them are void, for scanners without a network."""
    said = ask(url, data_dir, lambda admin: admin.call("GET", f"/admin/orders/events/{event_id}/tickets.json"))
    file.touch(mode=0o600)
    file.write_bytes(orjson.dumps(said))
    void = sum(ticket["status"] == "void" for ticket in said["tickets"])
    out.print(f"{event_id}: {len(said['tickets'])} tickets, {void} of them void")


def _keys(where: str) -> bytes:
    try:
        if where.startswith(("http://", "https://")):
            with httpx.Client(trust_env=False, timeout=DEADLINE_S) as client:
                return client.get(where).raise_for_status().content[:SET_MAX_BYTES]
        return Path(where).read_bytes()[:SET_MAX_BYTES]
    except (OSError, httpx.HTTPError) as away:
        raise Refused(f"{where}: {away}") from away


def _require_listed(ticket: TicketCode, code: str, path: Path | None) -> None:
    listed = _listed(path).get((ticket.event_id, ticket.ticket_id)) if path else None
    if path and listed is None and ticket.window_s:
        raise BadTicket("it is not in the list; fetch a newer one")
    if listed and listed["status"] == "void":
        at = datetime.fromisoformat(listed["void_at"]).astimezone(UTC)
        raise BadTicket(f"it is void since {at:%Y-%m-%d %H:%M}Z ({listed['void_reason']})")
    if not ticket.window_s:
        return
    if not listed:
        raise BadTicket("its code moves: only the list (--tickets) tells whether this one is of now")
    require_beat(ticket, unb64(listed["secret"]), code, at_s=time.time())


def _listed(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    try:
        if path.stat().st_size > LIST_MAX_BYTES:
            raise Refused(f"{path}: larger than {LIST_MAX_BYTES // 1024 // 1024} MiB.")
        said = orjson.loads(path.read_bytes())
        return {(said["event_id"], ticket["ticket_id"]): ticket for ticket in said["tickets"]}
    except OSError as away:
        raise Refused(f"{path}: {away.strerror}.") from away
    except (ValueError, KeyError, TypeError) as broken:
        raise Refused(f"{path}: not a list of tickets.") from broken
