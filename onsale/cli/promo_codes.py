"""`onsale promo`: create, stop and list the promo codes of an event, and list the orders that used them."""

from datetime import datetime
from typing import Annotated

import typer
from rich.table import Table

from onsale.cli.context import AdminCommands, Before, EventId, Reason, call_admin, out, print_page
from onsale.errors import OperatorError
from shared.contracts.admin import prices
from shared.contracts.fields import code_as_shown

app = AdminCommands(help="Create, stop and list promo codes, and list the orders that used them.")
Code = Annotated[str, typer.Argument(metavar="CODE", help="Case and blanks make no difference.")]
Time = Annotated[str | None, typer.Option(help="A time, such as 2027-01-31T12:00:00Z.")]


@app.command("add")
def add(
    event_id: EventId,
    code: Code,
    percent: Annotated[str | None, typer.Option(help="Percent off, such as 12.5.")] = None,
    amount: Annotated[int | None, typer.Option(min=1, help="Minor units off the order.")] = None,
    uses: Annotated[int | None, typer.Option(min=1, help="Most orders with this code in all.")] = None,
    customer_uses: Annotated[int | None, typer.Option(min=1, help="Most orders of one customer with it.")] = None,
    valid_from: Time = None,
    valid_until: Time = None,
    section: Annotated[list[str] | None, typer.Option(help="Only for tickets of this section; may repeat.")] = None,
    tickets: Annotated[int, typer.Option(min=1, help="Fewest such tickets in an order.")] = 1,
    reason: Reason = None,
) -> None:
    """Create or replace a promo code. A stopped code is valid again.

    Example: onsale promo add arena-2026 EARLY --percent 20 --uses 500
    """
    if (percent is None) == (amount is None):
        raise OperatorError("Give either --percent or --amount: what the code takes off.")
    body = {
        "percent": percent, "amount_minor": amount, "uses_max": uses, "customer_uses_max": customer_uses,
        "valid_from": _time(valid_from), "valid_until": _time(valid_until), "section_ids": section or [],
        "tickets_min": tickets, "reason": reason,
    }  # fmt: skip
    _print_done(event_id, call_admin(prices.PUT_PROMO_CODE, body, event_id=event_id, code=code), "ready")


def _time(text: str | None) -> str | None:
    """Raises `OperatorError`."""
    try:
        return text and datetime.fromisoformat(text).isoformat()
    except ValueError as unreadable:
        raise OperatorError(f"{text}: times are written as 2027-01-31T12:00:00Z.") from unreadable


@app.command("stop")
def stop(event_id: EventId, code: Code, reason: Reason = None) -> None:
    """Stop a promo code. Orders that used it keep their discount."""
    done = call_admin(prices.DEACTIVATE_PROMO_CODE, query={"reason": reason or None}, event_id=event_id, code=code)
    _print_done(event_id, done, "stopped")


def _print_done(event_id: str, done: prices.PromoCodeChanged, what: str) -> None:
    out.print(f"{event_id}: {done.code} {what if done.changed else 'is so already'}")


@app.command("list")
def list_codes(
    event_id: EventId, after: Annotated[str | None, typer.Option(help="Only codes after this one.")] = None
) -> None:
    """List the promo codes of an event and how often each was used."""
    found = call_admin(prices.LIST_PROMO_CODES, query={"after": after}, event_id=event_id)
    table = Table(
        "code", "takes off", "uses", "a customer", "valid", "sections", "tickets", "stopped at", title=event_id
    )
    for code in found.promo_codes:
        table.add_row(code.code, *_cells(code), code.stopped_at or "")
    print_page(table, found)


def _cells(code: prices.PromoCodeAnswer) -> tuple[str, ...]:
    off = f"{code.percent} %" if code.percent else str(code.amount_minor)
    used = f"{code.uses} of {code.uses_max}" if code.uses_max else str(code.uses)
    valid = f"{code.valid_from or ''} – {code.valid_until or ''}".strip(" –")
    return off, used, str(code.customer_uses_max or ""), valid, " ".join(code.section_ids), str(code.tickets_min)


@app.command("uses")
def list_uses(event_id: EventId, code: Code, before: Before = None) -> None:
    """List the orders that used a promo code. Orders that ended unpaid do not count."""
    found = call_admin(prices.LIST_PROMO_CODE_USES, query={"before": before}, event_id=event_id, code=code)
    table = Table("order", "status", "counts", "at", title=f"{event_id} {code_as_shown(code)}")
    for use in found.uses:
        table.add_row(use.reference, use.status, "yes" if use.counts else "no", use.at)
    print_page(table, found)
