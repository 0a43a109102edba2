"""The `onsale` command: its groups and commands in one list, and what runs a suite or single services.

An error that the operator can fix is printed here as one line, with exit code 2. Modules that run services are imported
where they are used: an operator's command does not wait until five services are loaded.
"""

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

from onsale import event_files
from onsale.backup.command import backup, restore, snapshot
from onsale.capacity.command import plan
from onsale.cli import (
    access_codes,
    events,
    lottery,
    orders,
    promo_codes,
    reconcile,
    room,
    stock,
    tickets,
    webhooks,
)  # fmt: skip
from onsale.cli.context import DATA_DIR, DataDir, err, for_suite, out, run_async
from onsale.deploy.command import deploy_config
from onsale.errors import OperatorError
from onsale.local import key_file
from onsale.maintenance import keys
from onsale.maintenance.api_documents import openapi
from onsale.maintenance.migrations import migrate
from onsale.maintenance.problem_catalogue import problems
from onsale.simulate.command import simulate
from shared.messaging.log import LogRefused
from shared.postgres.errors import WrongDatabase
from shared.redis.url import RedisUnfit
from shared.runtime.descriptors import raise_descriptor_limit
from shared.runtime.logging import write_json_lines
from shared.runtime.secrets_dir import BadSecrets
from shared.web.routes import SERVICES, Service

if TYPE_CHECKING:
    from onsale.local.up import Suite

RUN, OPERATE, MAINTAIN = "Run", "Operate a sale", "Install, maintain, develop"
NON_TERMINAL_COLUMNS = "200"
app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Onsale: waiting room, ticket inventory, orders and live updates for high-demand ticket on-sales.",
)


def main() -> None:
    """Runs the command line. Output into a pipe is not cut to the width of a screen."""
    if not sys.stdout.isatty():
        os.environ.setdefault("COLUMNS", NON_TERMINAL_COLUMNS)
    try:
        app()
    except (OperatorError, RedisUnfit, LogRefused, WrongDatabase, BadSecrets) as error:
        err.print(f"[red]onsale:[/] {escape(str(error))}", soft_wrap=True)
        sys.exit(2)


def up(
    port: Annotated[int, typer.Option(min=1, max=65535, help="The one port of the suite.")] = 8000,
    data_dir: DataDir = DATA_DIR,
    event: Annotated[
        list[Path] | None, typer.Option(help="Event file to apply; a new event's room is opened. May repeat.")
    ] = None,
    processes: Annotated[
        bool, typer.Option("--processes", help="Run one process per service instead of one for all.")
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
    verbose: Annotated[bool, typer.Option("--verbose", help="Log a JSON line for each request.")] = False,
) -> None:
    """Run the whole suite on this machine: PostgreSQL, Valkey, services, payment sandbox. Ctrl-C stops it.

    Data stays in the data directory; the next start continues with it. A database named in ONSALE_POSTGRES_URL or
    ONSALE_REDIS_URL is used as it is; otherwise the program on PATH is started, or the one that came with the
    installation.

    Example: onsale up --event deploy/events/arena.yaml
    """
    from onsale.local.up import Suite, run

    write_json_lines(logging.INFO if verbose else logging.WARNING)
    raise_descriptor_limit()
    suite = Suite(
        data_dir=data_dir,
        events=[event_files.read(path) for path in event or []],
        port=port,
        host=host,
        processes=processes,
        notifiers=notifiers,
        report=lambda line: out.print(f"[dim]{line}[/]"),
    )
    run_async(run(suite, started=lambda: _print_addresses(suite)))


def _print_addresses(suite: "Suite") -> None:
    table = Table.grid(padding=(0, 2))
    table.add_row("Fan page", f"[bold]{suite.url}/[/]")
    for event in suite.events:
        table.add_row("", f"{suite.url}/e/{event.event_id}  [dim]{event.name}[/]")
    table.add_row("Admin API", f"{suite.url}/admin/…")
    table.add_row("Admin key", f"{suite.data_dir / key_file.ADMIN_KEY_FILE}")
    table.add_row("API docs", "  ".join(f"{suite.url}/{service}/docs" for service in SERVICES[:2]) + "  …")
    table.add_row("Databases", f"{suite.data_dir / 'engines.json'}")
    out.print(Panel(table, title="[green]Onsale is running[/]", subtitle="Ctrl-C stops it", expand=False))


def serve(
    names: Annotated[list[str], typer.Argument(metavar="SERVICE…", help="gateway, queue, inventory, orders, notifier")],
) -> None:
    """Run single services in this process, as a cluster does. All settings come from the environment.

    Example: onsale serve queue
    """
    write_json_lines()
    raise_descriptor_limit()
    services: list[Service] = [name for name in SERVICES if name in names]
    if unknown := set(names) - set(services):
        raise OperatorError(f"There is no service {', '.join(sorted(unknown))}; there are {', '.join(SERVICES)}.")
    run_async(_serve(services))


async def _serve(names: list[Service]) -> None:
    from onsale.server import serve

    apps = serve.create(names)
    await serve.until_stopped(apps, serve.public_listeners(apps), serve.internal_listeners(apps))


_COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    RUN: (up, serve, simulate),
    OPERATE: (for_suite(events.audit), plan),
    MAINTAIN: (migrate, backup, restore, snapshot, deploy_config, problems, openapi),
}
for _group, _name in (
    (events.app, "events"), (room.app, "room"), (access_codes.app, "codes"), (lottery.app, "lottery"),
    (stock.app, "stock"), (reconcile.app, "reconcile"), (orders.app, "order"), (promo_codes.app, "promo"),
    (tickets.app, "tickets"), (webhooks.app, "webhooks"),
):  # fmt: skip
    app.add_typer(_group, name=_name, rich_help_panel=OPERATE)
app.add_typer(keys.app, name="keys", rich_help_panel=MAINTAIN)
for _panel, _commands in _COMMANDS.items():
    for _command in _commands:
        app.command(_command.__name__.replace("_", "-"), rich_help_panel=_panel)(_command)
