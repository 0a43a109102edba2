"""What support adds to `onsale order`: find and show orders, decide about them, refund an event, replay commands."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Column, Table

from onsale.admin_client import given
from onsale.cli.context import (
    AdminCommands,
    Before,
    EventId,
    RequiredReason,
    add_action,
    out,
    print_page,
    to_second,
    with_admin,
)
from onsale.cli.orders import Reference, ReturnToSale

if TYPE_CHECKING:
    from features.support.schemas import CommandPage, EventRefundProgress

app = AdminCommands(help="Find orders, and resolve what waits for a decision.")
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
    order = with_admin(lambda admin: admin.resolve_order(reference, body))
    out.print(f"{reference}: {decision} decided; now {order.status}")


add_action(
    app, "retry", "retry_order", {"reference": Reference}, "{answer.reference}: retry; now {answer.status}",
    about="Retry an order now: do what is due later, and ask its payment provider again.", reason=...,
)  # fmt: skip


@app.command("rename")
def rename(
    reference: Reference,
    name: Annotated[str, typer.Argument(help="The new name.")],
    reason: RequiredReason,
    ticket: Annotated[str | None, typer.Option(help="The ticket; without it, the one name of the order.")] = None,
) -> None:
    """Change the name on a ticket, also after the time until which buyers may.

    Example: onsale order rename 7QK2M9TZ4HXA "Ada Lovelace" --ticket 2YN8ZK4TQ6WB --reason "misspelt"
    """
    body = {"reason": reason, **({"names": {ticket: name}} if ticket else {"name": name})}
    with_admin(lambda admin: admin.rename_tickets(reference, body))
    out.print(f"{reference}: the name on {f'ticket {ticket}' if ticket else 'its tickets'} is {name}")


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


def _counts(counts: Mapping[str, int | str]) -> str:
    return ", ".join(f"{n} {name}" for name, n in counts.items()) or "none"
