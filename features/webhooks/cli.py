"""`onsale webhooks`: add, list, enable and remove webhook endpoints, list their deliveries and send one again."""

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from onsale.cli.context import AdminCommands, Before, Reason, add_action, out, print_page, to_second, with_admin

if TYPE_CHECKING:
    from features.webhooks.schemas import WebhookDeliveryPage, WebhookEndpoint

app = AdminCommands(help="Manage webhook endpoints: signed messages about orders, retried for days.")
EndpointId = Annotated[str, typer.Argument(metavar="ENDPOINT_ID", help="As `onsale webhooks list` shows it.")]
DeliveryId = Annotated[
    int, typer.Argument(min=1, metavar="DELIVERY_ID", help="As `onsale webhooks deliveries` lists it.")
]


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
    body: dict[str, Any] = {"url": address, "event_id": event, "description": description, "reason": reason}
    body |= {"kinds": kind} if kind else {}
    new = with_admin(lambda admin: admin.create_webhook_endpoint(body))
    out.print(f"{new.endpoint_id}  {new.url}")
    out.print(f"secret: {new.secret}", soft_wrap=True)


@app.command("list")
def list_endpoints() -> None:
    """List webhook endpoints and their state."""
    table = Table("id", "url", "event", "kinds", "state")
    for endpoint in with_admin(lambda admin: admin.list_webhook_endpoints()).endpoints:
        kinds = ", ".join(kind.removeprefix("order.") for kind in endpoint.kinds)
        table.add_row(endpoint.endpoint_id, endpoint.url, endpoint.event_id or "all", kinds, _state(endpoint))
    out.print(table)


def _state(endpoint: "WebhookEndpoint") -> str:
    if endpoint.disabled_at:
        return f"disabled: {endpoint.disabled_reason}"
    return f"failing since {endpoint.failing_since[:19]}" if endpoint.failing_since else "healthy"


add_action(
    app, "remove", "delete_webhook_endpoint", {"endpoint_id": EndpointId}, "{endpoint_id}: removed",
    about="Remove a webhook endpoint: nothing more is sent to it.", reason="onsale webhooks remove",
)  # fmt: skip
add_action(
    app, "enable", "enable_webhook_endpoint", {"endpoint_id": EndpointId}, "{endpoint_id}: enabled",
    about="Enable a disabled webhook endpoint; deliveries that were pending go on.", reason="onsale webhooks enable",
)  # fmt: skip


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
    found: WebhookDeliveryPage = with_admin(
        lambda admin: admin.call("list_webhook_deliveries", query=query, endpoint_id=endpoint_id)
    )
    print_page(found, ("id", "when", "what", "order", "status", "tries", "answer", "next try"), (
        (str(row.id), to_second(row.created_at), row.kind, row.reference, row.status, str(row.attempts),
         row.error or str(row.answer_status or ""), to_second(row.due_at))
        for row in found.deliveries
    ))  # fmt: skip


add_action(
    app, "resend", "resend_webhook", {"delivery_id": DeliveryId},
    "{answer.message_id}: {answer.kind} of {answer.reference} is due",
    about="Send a delivery again now, with the same message id.", reason="onsale webhooks resend",
)  # fmt: skip
