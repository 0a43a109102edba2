"""`onsale promo`: create, stop and list the promo codes of an event, and list the orders that used them."""

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onsale.cli.context import AdminCommands, Before, EventId, Reason, add_action, out, print_page, with_admin
from onsale.errors import OperatorError
from shared.contracts.fields import code_as_shown

if TYPE_CHECKING:
    from features.promo.schemas import PromoCodeAnswer, PromoCodeChanged

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
    done = with_admin(lambda admin: admin.put_promo_code(event_id, code, body))
    out.print(_done("ready", answer=done, event_id=event_id))


def _time(text: str | None) -> str | None:
    """Raises `OperatorError`."""
    try:
        return text and datetime.fromisoformat(text).isoformat()
    except ValueError as unreadable:
        raise OperatorError(f"{text}: times are written as 2027-01-31T12:00:00Z.") from unreadable


def _done(what: str, *, answer: "PromoCodeChanged", event_id: str, **_: Any) -> str:
    return f"{event_id}: {answer.code} {what if answer.changed else 'is so already'}"


add_action(
    app, "stop", "deactivate_promo_code", {"event_id": EventId, "code": Code}, partial(_done, "stopped"),
    about="Stop a promo code. Orders that used it keep their discount.",
)  # fmt: skip


@app.command("list")
def list_codes(
    event_id: EventId, after: Annotated[str | None, typer.Option(help="Only codes after this one.")] = None
) -> None:
    """List the promo codes of an event and how often each was used."""
    found = with_admin(lambda admin: admin.list_promo_codes(event_id, after=after))
    columns = ("code", "takes off", "uses", "a customer", "valid", "sections", "tickets", "stopped at")
    print_page(found, columns, map(_cells, found.promo_codes), title=event_id)


def _cells(code: "PromoCodeAnswer") -> tuple[str, ...]:
    off = f"{code.percent} %" if code.percent else str(code.amount_minor)
    used = f"{code.uses} of {code.uses_max}" if code.uses_max else str(code.uses)
    valid = f"{code.valid_from or ''} – {code.valid_until or ''}".strip(" –")
    each, sections = str(code.customer_uses_max or ""), " ".join(code.section_ids)
    return code.code, off, used, each, valid, sections, str(code.tickets_min), code.stopped_at or ""


@app.command("uses")
def list_uses(event_id: EventId, code: Code, before: Before = None) -> None:
    """List the orders that used a promo code. Orders that ended unpaid do not count."""
    found = with_admin(lambda admin: admin.list_promo_code_uses(event_id, code, before=before))
    print_page(found, ("order", "status", "counts", "at"), (
        (use.reference, use.status, "yes" if use.counts else "no", use.at) for use in found.uses
    ), title=f"{event_id} {code_as_shown(code)}")  # fmt: skip
