"""`onsale webhooks`: add, list, enable and remove webhook endpoints, list their deliveries and send one again."""

from typing import Annotated

import typer
from rich.table import Table

from onsale.cli.context import AdminCommands, Before, Reason, call_admin, out, print_page, to_second
from shared.contracts.admin import orders

app = AdminCommands(help="Manage webhook endpoints: signed messages about orders, retried for days.")
EndpointId = Annotated[str, typer.Argument(metavar="ENDPOINT_ID", help="As `onsale webhooks list` shows it.")]


@app.command("add")
def add(
    address: Annotated[str, typer.Argument(metavar="URL", help="Where to send: a public https address.")],
    kind: Annotated[
        list[str] | None,
        typer.Option(help="order.created, .confirmed, .cancelled, .expired or .refunded; may repeat; default all."),
    ] = None,
    event: Annotated[str | None, typer.Option(help="Only orders of this event; default all.")] = None,
    description: Annotated[str | None, typer.Option(help="A note for operators.")] = None,
    reason: Reason = "onsale webhooks add",
) -> None:
    """Add a webhook endpoint. Its signing secret is shown once.

    Example: onsale webhooks add https://crm.example.org/onsale --event arena-2026
    """
    body = {"url": address, "event_id": event, "description": description, "reason": reason}
    new = call_admin(orders.CREATE_WEBHOOK_ENDPOINT, body | ({"kinds": kind} if kind else {}))
    out.print(f"{new.endpoint_id}  {new.url}")
    out.print(f"secret: {new.secret}", soft_wrap=True)


@app.command("list")
def list_endpoints() -> None:
    """List webhook endpoints and their state."""
    table = Table("id", "url", "event", "kinds", "state")
    for endpoint in call_admin(orders.LIST_WEBHOOK_ENDPOINTS).endpoints:
        kinds = ", ".join(kind.removeprefix("order.") for kind in endpoint.kinds)
        table.add_row(endpoint.endpoint_id, endpoint.url, endpoint.event_id or "all", kinds, _state(endpoint))
    out.print(table)


def _state(endpoint: orders.WebhookEndpoint) -> str:
    if endpoint.disabled_at:
        return f"disabled: {endpoint.disabled_reason}"
    return f"failing since {endpoint.failing_since[:19]}" if endpoint.failing_since else "healthy"


@app.command("remove")
def remove(endpoint_id: EndpointId, reason: Reason = "onsale webhooks remove") -> None:
    """Remove a webhook endpoint: nothing more is sent to it."""
    call_admin(orders.DELETE_WEBHOOK_ENDPOINT, query={"reason": reason}, endpoint_id=endpoint_id)
    out.print(f"{endpoint_id}: removed")


@app.command("enable")
def enable(endpoint_id: EndpointId, reason: Reason = "onsale webhooks enable") -> None:
    """Enable a disabled webhook endpoint; deliveries that were pending go on."""
    call_admin(orders.ENABLE_WEBHOOK_ENDPOINT, {"reason": reason}, endpoint_id=endpoint_id)
    out.print(f"{endpoint_id}: enabled")


@app.command("deliveries")
def deliveries(
    endpoint_id: EndpointId,
    status: Annotated[str | None, typer.Option(help="pending, delivered or failed.")] = None,
    before: Before = None,
) -> None:
    """List the deliveries to a webhook endpoint, newest first.

    Example: onsale webhooks deliveries ep_5f0c1d2e3b4a5968 --status failed
    """
    query = {"before": before, "status": status}
    found = call_admin(orders.LIST_WEBHOOK_DELIVERIES, query=query, endpoint_id=endpoint_id)
    table = Table("id", "when", "what", "order", "status", "tries", "answer", "next try")
    for row in found.deliveries:
        cells = (row.id, to_second(row.created_at), row.kind, row.reference, row.status, row.attempts)
        table.add_row(*map(str, cells), row.error or str(row.answer_status or ""), to_second(row.due_at))
    print_page(table, found)


@app.command("resend")
def resend(
    delivery_id: Annotated[
        int, typer.Argument(min=1, metavar="DELIVERY_ID", help="As `onsale webhooks deliveries` lists it.")
    ],
    reason: Reason = "onsale webhooks resend",
) -> None:
    """Send a delivery again now, with the same message id."""
    row = call_admin(orders.RESEND_WEBHOOK, {"reason": reason}, delivery_id=delivery_id)
    out.print(f"{row.message_id}: {row.kind} of {row.reference} is due")
