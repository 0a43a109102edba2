"""The commands people type. Each is a few lines here and a room of its own elsewhere.

What runs services is imported where it is used: an operator's command should not wait for five services to load.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import uvloop
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

from onsale.backup.command import backup, restore, snapshot
from onsale.capacity.command import plan
from onsale.commands import events as commands_events
from onsale.commands import promo_codes, tickets, webhooks
from onsale.commands.audit import print_audit
from onsale.commands.client import Refused
from onsale.commands.context import DATA_DIR, DataDir, EventId, Url, ask, err, out
from onsale.commands.lanes import codes, lanes_table
from onsale.commands.lottery import lottery
from onsale.commands.room import add_steering
from onsale.deploy.command import deploy_config
from onsale.local import key_file
from onsale.local.process import EngineTrouble
from onsale.maintenance import keys
from onsale.maintenance.api_documents import openapi
from onsale.maintenance.migrations import migrate
from onsale.maintenance.problem_catalogue import problems
from onsale.sales import order_commands, orders, reconcile, stock
from onsale.sales.hold_times import hold_times
from onsale.simulate.command import simulate
from shared.messaging.log import LogRefused
from shared.postgres.isolation import WrongDatabase
from shared.redis.url import RedisUnfit
from shared.runtime.descriptors import raise_descriptor_limit
from shared.runtime.logging import write_json_lines
from shared.runtime.secrets_dir import BadSecrets
from shared.web.routes import SERVICES, Service

if TYPE_CHECKING:
    from onsale.local.up import Suite

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Onsale: a waiting room, ticket inventory, orders and live updates for on-sales that everybody wants.",
)
events = typer.Typer(no_args_is_help=True, help="Describe on-sales to a running suite.")
room = typer.Typer(no_args_is_help=True, help="Steer a waiting room while fans are in it.")
app.add_typer(events, name="events")
app.add_typer(room, name="room")
app.add_typer(lottery, name="lottery")
app.add_typer(keys.app, name="keys")
app.add_typer(reconcile.app, name="reconcile")
app.add_typer(codes, name="codes")
app.add_typer(stock.app, name="stock")
app.add_typer(orders.app, name="order")
orders.app.registered_commands += order_commands.app.registered_commands
app.add_typer(webhooks.app, name="hooks")
app.add_typer(tickets.app, name="tickets")
app.add_typer(promo_codes.app, name="promo")
stock.app.command("hold-times")(hold_times)
app.command("plan")(plan)
app.command("simulate")(simulate)
for work in (migrate, backup, restore, snapshot):
    app.command(work.__name__)(work)
app.command("deploy-config")(deploy_config)
app.command("problems")(problems)
app.command("openapi")(openapi)


def main() -> None:
    """What a person can put right is one line and exit code 2. What goes into a pipe is not cut to a screen's width."""
    if not sys.stdout.isatty():
        os.environ.setdefault("COLUMNS", "200")
    try:
        app()
    except (
        EngineTrouble,
        RedisUnfit,
        Refused,
        LogRefused,
        WrongDatabase,
        BadSecrets,
        commands_events.BadEventFile,
    ) as trouble:
        err.print(f"[red]onsale:[/] {escape(str(trouble))}", soft_wrap=True)
        sys.exit(2)


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


@app.command()
def up(
    port: Annotated[int, typer.Option(min=1, max=65535, help="The one port everything answers on.")] = 8000,
    data_dir: DataDir = DATA_DIR,
    event: Annotated[list[Path] | None, typer.Option(help="Event file to load and open; may be repeated.")] = None,
    processes: Annotated[
        bool, typer.Option("--processes", help="One process per service instead of one in all.")
    ] = False,
    notifiers: Annotated[
        int,
        typer.Option(
            min=0,
            max=64,
            help="Run this many notifier processes on one port, each restarted if it ends. Limits on streams "
            "(NOTIFIER_STREAMS_MAX and others) are per process. 0: one notifier, like the other services.",
        ),
    ] = 0,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    verbose: Annotated[bool, typer.Option("--verbose", help="A JSON line per request.")] = False,
) -> None:
    """Run the whole suite on this machine: engines, services, payment sandbox. Ctrl-C stops it.

    Data stays in the data directory; starting again goes on where it stopped. An engine named in ONSALE_POSTGRES_URL
    or ONSALE_REDIS_URL is used as it is; otherwise one on PATH is started, or the one that came with the installation.
    """
    from onsale.local.up import Suite, run

    write_json_lines(logging.INFO if verbose else logging.WARNING)
    raise_descriptor_limit()
    files = [commands_events.read(path) for path in event or []]
    suite = Suite(
        data_dir=data_dir,
        events=files,
        port=port,
        host=host,
        processes=processes,
        notifiers=notifiers,
        say=lambda line: out.print(f"[dim]{line}[/]"),
    )
    _run(run(suite, started=lambda: _welcome(suite)))


def _welcome(suite: "Suite") -> None:
    table = Table.grid(padding=(0, 2))
    table.add_row("Fan page", f"[bold]{suite.url}/[/]")
    for event in suite.events:
        table.add_row("", f"{suite.url}/e/{event.event_id}  [dim]{event.name}[/]")
    table.add_row("Admin API", f"{suite.url}/admin/…")
    table.add_row("Admin key", f"{suite.data_dir / key_file.ADMIN_KEY_FILE}")
    table.add_row("API docs", "  ".join(f"{suite.url}/{service}/docs" for service in SERVICES[:2]) + "  …")
    table.add_row("Engines", f"{suite.data_dir / 'engines.json'}")
    out.print(Panel(table, title="[green]Onsale is running[/]", subtitle="Ctrl-C stops it", expand=False))


@app.command("serve")
def serve_one(
    names: Annotated[list[str], typer.Argument(metavar="SERVICE…", help="gateway, queue, inventory, orders, notifier")],
) -> None:
    """Run services on their own, as a cluster does: every setting comes from the environment."""
    write_json_lines()
    raise_descriptor_limit()
    wanted: list[Service] = [name for name in SERVICES if name in names]
    if unknown := set(names) - set(wanted):
        raise EngineTrouble(f"There is no service {', '.join(sorted(unknown))}; there are {', '.join(SERVICES)}.")
    _run(_serve(wanted))


async def _serve(names: list[Service]) -> None:
    from onsale.server import serve

    apps = serve.create(names)
    await serve.until_told(apps, serve.public_listeners(apps), serve.internal_listeners(apps))


@events.command("apply")
def apply_events(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the files against the suite, change nothing.")
    ] = False,
    url: Url = None,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Give event files to a running suite; this needs an admin key.

    A file that any part refuses changes nothing anywhere, and applying one again changes nothing. A new room is a
    draft: `onsale room open EVENT_ID` lets fans in.
    """
    for event in [commands_events.read(path) for path in files]:
        changes = _admin(url, data_dir, lambda admin, event=event: admin.apply(event, dry_run=dry_run))
        changed = ", ".join(service for service, differs in changes.items() if differs) or "nothing"
        state = "" if dry_run else _admin(url, data_dir, lambda admin, event=event: admin.room(event.event_id))["state"]
        hint = f"; its room is a draft: onsale room open {event.event_id}" if state == "draft" else ""
        out.print(
            f"{event.event_id}: {'would change' if dry_run else 'applied, changed'} {changed}{hint}", soft_wrap=True
        )


@room.command("show")
def show_room(event_id: EventId, url: Url = None, data_dir: DataDir = DATA_DIR) -> None:
    """What the room is set to, and where its line stands."""
    state = _admin(url, data_dir, lambda admin: admin.room(event_id))
    table = Table(show_header=False, title=event_id)
    for name, value in state.items():
        if name != "lanes":
            table.add_row(name, str(value))
    out.print(table, lanes_table(state["lanes"]))


@room.command("set")
def set_room(
    event_id: EventId,
    rate: Annotated[float | None, typer.Option(min=0, help="Admissions per second; 0 calls nobody.")] = None,
    burst: Annotated[int | None, typer.Option(min=1, help="Calls that may come at once.")] = None,
    max_active: Annotated[int | None, typer.Option(min=0, help="Fans inside at most, called ones included.")] = None,
    rollout: Annotated[
        float | None, typer.Option(min=0, max=100, help="Percent of fans who go through the room.")
    ] = None,
    reason: Annotated[str, typer.Option(help="Kept in the audit trail.")] = "onsale room set",
    url: Url = None,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Change the admission rate and its bounds; the next tick (0.2 s) obeys."""
    asked = {"rate_per_s": rate, "burst": burst, "max_active": max_active, "rollout_percent": rollout}
    values = {name: value for name, value in asked.items() if value is not None}
    if not values:
        raise Refused("Say what to set: --rate, --burst, --max-active or --rollout.")
    _admin(url, data_dir, lambda admin: admin.change_room(event_id, **values, reason=reason))
    out.print(f"{event_id}: {', '.join(f'{name} = {value:g}' for name, value in values.items())}")


def _room_action(action: str, sentence: str) -> None:
    @room.command(action, help=sentence)
    def act(
        event_id: EventId, reason: str = f"onsale room {action}", url: Url = None, data_dir: DataDir = DATA_DIR
    ) -> None:
        _admin(url, data_dir, lambda admin: admin.act(event_id, action, reason=reason))
        out.print(f"{event_id}: {action}")


_room_action("open", "Open the room: fans can join, and calls begin when the sale starts.")
_room_action("pause", "Call nobody for now; fans keep their places.")
_room_action("resume", "Go on calling, without a flood.")
_room_action("drain", "Nobody new may join; whoever is in line is still called.")
_room_action("close", "Nobody joins, nobody is called.")


@app.command()
def audit(event_id: EventId, url: Url = None, data_dir: DataDir = DATA_DIR) -> None:
    """Check the invariants of an event over gate and ledger. Exit code 1 if one is broken."""
    if not print_audit(out, _admin(url, data_dir, lambda admin: admin.audit(event_id))):
        raise typer.Exit(1)


def _admin(url: str | None, data_dir: Path, question: Any) -> Any:
    return ask(url, data_dir, question)


add_steering(room, out, _admin)
