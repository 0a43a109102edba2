"""`onsale hooks …`: whom the suite tells of orders over the web, what was sent, and sending it again."""

from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.table import Table

from onsale.commands.context import DATA_DIR, DataDir, Url, ask, out

app = typer.Typer(no_args_is_help=True, help="Tell other systems of orders: webhooks, signed and retried.")
HookId = Annotated[str, typer.Argument(metavar="HOOK_ID", help="As `onsale hooks list` shows it.")]
Reason = Annotated[str, typer.Option(help="Kept in the audit trail.")]
PATH = "/admin/orders/hooks"


def _ask(url: str | None, data_dir: Any, method: str, path: str = "", body: Any = None) -> Any:
    return ask(url, data_dir, lambda admin: admin.call(method, PATH + path, body))


@app.command("add")
def add(
    address: Annotated[str, typer.Argument(metavar="URL", help="Where to send: https, a public address.")],
    kind: Annotated[
        list[str] | None, typer.Option(help="order.created, .confirmed, .cancelled, .expired or .refunded; all.")
    ] = None,
    event: Annotated[str | None, typer.Option(help="Only of this event.")] = None,
    description: Annotated[str | None, typer.Option(help="For people.")] = None,
    reason: Reason = "onsale hooks add",
    url: Url = None,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Send to another endpoint. Its signing secret is shown this once."""
    body = {"url": address, "event_id": event, "description": description, "reason": reason}
    new = _ask(url, data_dir, "POST", body=body | ({"kinds": kind} if kind else {}))
    out.print(f"{new['hook_id']}  {new['url']}")
    out.print(f"secret: {new['secret']}", soft_wrap=True)


@app.command("list")
def show_hooks(url: Url = None, data_dir: DataDir = DATA_DIR) -> None:
    """Every endpoint, and whether it is well."""
    table = Table("id", "url", "event", "told of", "state")
    for hook in _ask(url, data_dir, "GET")["hooks"]:
        kinds = ", ".join(kind.removeprefix("order.") for kind in hook["kinds"])
        table.add_row(hook["hook_id"], hook["url"], hook["event_id"] or "all", kinds, _state(hook))
    out.print(table)


def _state(hook: Mapping[str, Any]) -> str:
    if hook["disabled_at"]:
        return f"disabled: {hook['disabled_reason']}"
    return f"failing since {hook['failing_since'][:19]}" if hook["failing_since"] else "well"


@app.command("remove")
def remove(
    hook_id: HookId, reason: Reason = "onsale hooks remove", url: Url = None, data_dir: DataDir = DATA_DIR
) -> None:
    """Send nothing more to an endpoint."""
    _ask(url, data_dir, "DELETE", f"/{hook_id}?reason={quote(reason)}")
    out.print(f"{hook_id}: removed")


@app.command("enable")
def enable(
    hook_id: HookId, reason: Reason = "onsale hooks enable", url: Url = None, data_dir: DataDir = DATA_DIR
) -> None:
    """Enable a webhook endpoint; what it was owed before goes on."""
    _ask(url, data_dir, "POST", f"/{hook_id}/enable", {"reason": reason})
    out.print(f"{hook_id}: enabled")


@app.command("deliveries")
def deliveries(
    hook_id: HookId,
    status: Annotated[str | None, typer.Option(help="pending, delivered or failed.")] = None,
    page: Annotated[int, typer.Option(min=1, max=1000)] = 1,
    url: Url = None,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """What was sent to an endpoint and what came of it, the newest first."""
    wanted = f"?page={page}" + (f"&status={quote(status)}" if status else "")
    table = Table("id", "when", "what", "order", "status", "tries", "answer", "next try")
    for row in _ask(url, data_dir, "GET", f"/{hook_id}/deliveries{wanted}")["deliveries"]:
        when, due = row["created_at"][:19].replace("T", " "), (row["due_at"] or "")[:19].replace("T", " ")
        told = (row["id"], when, row["kind"], row["reference"], row["status"], row["attempts"])
        table.add_row(*map(str, told), row["error"] or str(row["answer_status"] or ""), due)
    out.print(table)


@app.command("resend")
def resend(
    delivery_id: Annotated[int, typer.Argument(min=1, metavar="DELIVERY_ID")],
    reason: Reason = "onsale hooks resend",
    url: Url = None,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Send a delivery again, now, under the id it had."""
    row = _ask(url, data_dir, "POST", f"/deliveries/{delivery_id}/resend", {"reason": reason})
    out.print(f"{row['message_id']}: {row['kind']} of {row['reference']} is due")
