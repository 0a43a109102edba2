"""`onsale order`: find orders, show, refund and resolve them, replay their commands."""

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.table import Column, Table

from onsale.admin_client import given
from onsale.cli.context import (
    AdminCommands,
    Before,
    EventId,
    Reason,
    RequiredReason,
    add_action,
    out,
    print_page,
    to_second,
    with_admin,
)  # fmt: skip
from onsale.errors import OperatorError

if TYPE_CHECKING:
    from shared.contracts.admin.orders import AdminOrder, CommandPage, EventRefundProgress

app = AdminCommands(help="Find orders, refund them, resolve what waits for a decision.")
Reference = Annotated[str, typer.Argument(metavar="REFERENCE", help="The order's reference, such as 7QK2M9TZ4HXA.")]
ReturnToSale = Annotated[bool, typer.Option("--return-to-sale", help="Put the tickets on sale again.")]
Rate = Annotated[float | None, typer.Option(help="Orders to refund per second.")]
EVENT_REFUND = {  # what each takes
    "start": ("reason", "rate_per_s", "return_to_sale"), "pause": ("reason",), "resume": ("reason", "rate_per_s"),
}  # fmt: skip


@app.command("find")
def find(
    q: Annotated[str | None, typer.Argument(help="Reference, e-mail, part of a name, seat or charge.")] = None,
    event: Annotated[str | None, typer.Option(help="Only orders of this event.")] = None,
    status: Annotated[str | None, typer.Option(help="Only orders in this status, such as review.")] = None,
    mail_failed: Annotated[bool, typer.Option("--mail-failed", help="Only those who could not be mailed.")] = False,
    before: Before = None,
) -> None:
    """Find orders, newest first.

    Example: onsale order find ada@example.org --status review
    """
    found = with_admin(lambda admin: admin.search_orders(
        q=q, event_id=event, status=status, before=before, mail_failed=mail_failed or None,
    ))  # fmt: skip
    columns = (Column("reference", no_wrap=True), "event", "status", "total", "refunded", "e-mail", "made")
    print_page(found, columns, (
        (order.reference, order.event_id, order.status, f"{order.total_minor} {order.currency}",
         str(order.refunded_minor), order.customer.email or "", order.created_at)
        for order in found.orders
    ))  # fmt: skip


@app.command("show")
def show(reference: Reference) -> None:
    """Show the timeline of an order."""
    answer = with_admin(lambda admin: admin.read_timeline(reference))
    order = answer.order
    table = Table("at", "", "what", title=f"{reference}: {order.status} {order.end_reason or ''}".strip())
    for row in answer.timeline:
        rest = {name: value for name, value in (row.model_extra or {}).items() if value not in (None, [])}
        table.add_row(row.at, row.kind, "  ".join(f"{name} {value}" for name, value in rest.items()))
    out.print(table)
    if order.may_be_resolved_by:
        out.print(f"A person must decide: {', '.join(order.may_be_resolved_by)}")


@app.command("refund")
def refund(
    reference: Reference,
    reason: RequiredReason,
    amount: Annotated[int | None, typer.Option(min=1, help="In minor units; without it, all that is left.")] = None,
    seat: Annotated[list[str] | None, typer.Option("--seat", help="Only the ticket of this seat; may repeat.")] = None,
    ga: Annotated[list[str] | None, typer.Option("--ga", help="Only GA tickets, such as GA1:2; may repeat.")] = None,
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
    _print_done(order, f"{back_minor} {order.currency} back or on their way (key {sent})")


def _ga_line(text: str) -> dict[str, Any]:
    section_id, _, quantity = text.partition(":")
    if not quantity.isdigit():
        raise OperatorError("GA tickets are written as GA1:2.")
    return {"section_id": section_id, "quantity": int(quantity)}


@app.command("resolve")
def resolve(
    reference: Reference,
    decision: Annotated[Literal["confirm", "refund", "expire"], typer.Argument(help="What becomes of it.")],
    reason: RequiredReason,
    return_to_sale: ReturnToSale = False,
) -> None:
    """Resolve an order in review: confirm the sale, refund the money, or end the order.

    Example: onsale order resolve 7QK2M9TZ4HXA refund --reason "bank agreed"
    """
    body = {"decision": decision, "reason": reason, "return_to_sale": return_to_sale}
    _print_done(with_admin(lambda admin: admin.resolve_order(reference, body)), f"{decision} decided")


for _verb, _about in {
    "retry": "Retry an order now: do what is due later, and ask its payment provider again.",
    "cancel": "Cancel an order that is not paid.",
}.items():
    _says = f"{{answer.reference}}: {_verb}; now {{answer.status}}"
    add_action(app, _verb, f"{_verb}_order", {"reference": Reference}, _says, about=_about, reason=...)


@app.command("refund-event")
def refund_event(
    event_id: EventId,
    action: Annotated[Literal["start", "show", "pause", "resume"], typer.Argument(help="What to do.")] = "show",
    reason: RequiredReason = "onsale order refund-event",
    rate: Rate = None,
    return_to_sale: ReturnToSale = False,
) -> None:
    """Refund all orders of an event; show the progress, pause or resume it.

    Example: onsale order refund-event arena-2026 start --rate 20 --reason "storm warning"
    """
    values = given({"reason": reason, "rate_per_s": rate, "return_to_sale": return_to_sale})
    body = {name: value for name, value in values.items() if name in EVENT_REFUND.get(action, ())}
    operation = f"{'read' if action == 'show' else action}_event_refund"
    job: EventRefundProgress = with_admin(lambda admin: admin.call(operation, body or None, event_id=event_id))
    out.print(f"{event_id}: {job.status}, {job.rate_per_s:g} a second, {job.asked} refunds asked for, "
              f"{job.cancelled} unpaid orders cancelled")  # fmt: skip
    out.print(f"orders: {_counts(job.orders)}", style="dim")
    refunds = {status: f"{sums.count} ({sums.amount_minor})" for status, sums in job.refunds.items()}
    out.print(f"refunds: {_counts(refunds)}", style="dim")


@app.command("commands")
def list_commands(
    event: Annotated[str | None, typer.Option(help="Only commands of this event.")] = None,
    reference: Annotated[str | None, typer.Option(help="Only commands of this order.")] = None,
    status: Annotated[str | None, typer.Option(help="pending, processing, completed or failed.")] = None,
    before: Before = None,
) -> None:
    """List the commands of orders, newest first: cause, attempts and error of each.

    Example: onsale order commands --status failed
    """
    query = {"event_id": event, "reference": reference, "status": status, "before": before}
    found: CommandPage = with_admin(lambda admin: admin.call("list_commands", query=query))
    print_page(found, ("when", "order", "command", "status", "caused by", "tries", "error", "id"), (
        (to_second(row.created_at), row.reference, row.command_type, row.status, row.caused_by, str(row.attempts),
         row.error_message or "", row.command_id)
        for row in found.commands
    ))  # fmt: skip


add_action(
    app, "rerun", "replay_command",
    {"command_id": Annotated[str, typer.Argument(metavar="COMMAND_ID", help="As `onsale order commands` shows it.")]},
    "{answer.reference}: {answer.command_type} runs again as {answer.command_id}",
    about="Replay a command now instead of at its next attempt.", reason="onsale order rerun",
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


def _counts(counts: Mapping[str, int | str]) -> str:
    return ", ".join(f"{n} {name}" for name, n in counts.items()) or "none"


def _print_done(order: "AdminOrder", done: str) -> None:
    out.print(f"{order.reference}: {done}; now {order.status}")
