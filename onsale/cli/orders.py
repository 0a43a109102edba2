"""`onsale order`: refund and cancel orders, set how many are processed in the background."""

import uuid
from typing import Annotated, Any

import typer

from onsale.cli.context import AdminCommands, EventId, Reason, RequiredReason, add_action, out, with_admin
from onsale.errors import OperatorError

app = AdminCommands(help="Find orders, refund them, resolve what waits for a decision.")
Reference = Annotated[str, typer.Argument(metavar="REFERENCE", help="The order's reference, such as 7QK2M9TZ4HXA.")]
ReturnToSale = Annotated[bool, typer.Option("--return-to-sale", help="Put the tickets on sale again.")]


@app.command("refund")
def refund(
    reference: Reference,
    reason: RequiredReason,
    amount: Annotated[int | None, typer.Option(min=1, help="In minor units; without it, all that is left.")] = None,
    seat: Annotated[list[str] | None, typer.Option("--seat", help="Only the ticket of this seat; may repeat.")] = None,
    ga: Annotated[
        list[str] | None, typer.Option("--ga", help="Only GA tickets, such as GA1:2, or GA1:2:child; may repeat.")
    ] = None,
    return_to_sale: ReturnToSale = False,
    key: Annotated[
        str | None, typer.Option(help="Idempotency key: refunds asked for with the same key are one refund.")
    ] = None,
) -> None:
    """Refund an order: all that is left, an amount, or some tickets.

    Example: onsale order refund 7QK2M9TZ4HXA --seat A-1-1 --return-to-sale --reason "one is ill"
    """
    body: dict[str, Any] = {"reason": reason, "return_to_sale": return_to_sale}
    if amount is not None:
        body["amount_minor"] = amount
    if seat or ga:
        body["tickets"] = {"seats": seat or [], "ga": [_ga_line(text) for text in ga or []]}
    sent = key or uuid.uuid4().hex
    order = with_admin(lambda admin: admin.refund_order(reference, body, key=sent))
    back_minor = order.refunded_minor + order.refunding_minor
    done = f"{back_minor} {order.currency} back or on their way (key {sent})"
    out.print(f"{order.reference}: {done}; now {order.status}")


def _ga_line(text: str) -> dict[str, Any]:
    section_id, quantity, type_id = [*text.split(":", 2), "", ""][:3]
    if not quantity.isdigit():
        raise OperatorError("GA tickets are written as GA1:2, those of a price type as GA1:2:child.")
    of_type = {"type_id": type_id} if type_id else {}
    return {"section_id": section_id, "quantity": int(quantity), **of_type}


add_action(
    app, "cancel", "cancel_order", {"reference": Reference}, "{answer.reference}: cancel; now {answer.status}",
    about="Cancel an order that is not paid.", reason=...,
)  # fmt: skip


@app.command("background")
def background(
    event_id: EventId,
    percent: Annotated[
        float | None, typer.Option(min=0, max=100, help="Percent of the fans; without it, the present share is shown.")
    ] = None,
    reason: Reason = "onsale order background",
) -> None:
    """Show or set the share of checkouts done in the background. The others finish within their own request."""
    if percent is not None:
        body = {"background_percent": percent, "reason": reason}
        with_admin(lambda admin: admin.set_background_share(event_id, body))
    now = with_admin(lambda admin: admin.read_background_share(event_id))
    out.print(f"{event_id}: {now.background_percent:g} % in the background")
