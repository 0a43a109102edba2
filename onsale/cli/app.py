"""The `onsale` command: its commands and groups in one list. A command is imported when it is called.

An error that the operator can fix is printed here as one line, with exit code 2.
"""

import os
import sys
from functools import cache
from typing import Annotated, Any

import typer
import typer.core
import typer.main

from onsale.errors import OperatorError
from onsale.imports import import_module
from shared import VERSION
from shared.features import BadFeature, CliCommand, installed

RUN, OPERATE, MAINTAIN = "Run", "Operate a sale", "Install, maintain"
NON_TERMINAL_COLUMNS = "200"


OWN = tuple(CliCommand(*row) for row in (
    ("up", "onsale.local.command:up", RUN,
     "Run the whole suite on this machine: PostgreSQL, Valkey, services, payment sandbox. Ctrl-C stops it."),
    ("serve", "onsale.server.command:serve", RUN,
     "Run single services in this process, as a cluster does. All settings come from the environment."),
    ("simulate", "onsale.simulate.command:simulate", RUN,
     "Simulate an on-sale: send fans through it over real HTTP and SSE."),
    ("check-history", "onsale.history.command:check_history", RUN,
     "Check that a sale kept what it told its fans: places, calls, holds, orders, tickets, charges."),
    ("audit", "onsale.cli.events:audit", OPERATE,
     "Check the invariants of an event in Redis and PostgreSQL. Exit code 1 if one does not hold."),
    ("plan", "onsale.capacity.command:plan", OPERATE,
     "Plan the capacity for a sale: rate, processes, memory, writes, streams, bandwidth, and what breaks first."),
    ("events", "onsale.cli.events:app", OPERATE, "Apply event files to a running suite, and read them back."),
    ("room", "onsale.cli.room:app", OPERATE, "Show and control the waiting room of an event."),
    ("reconcile", "onsale.cli.reconcile:app", OPERATE,
     "Compare the stock in Redis with PostgreSQL, list differences and oversold tickets."),
    ("order", "onsale.cli.orders:app", OPERATE, "Find orders, refund them, resolve what waits for a decision."),
    ("tickets", "onsale.cli.tickets:app", OPERATE, "Verify tickets and download the ticket list for scanners."),
    ("keys", "onsale.maintenance.keys:app", MAINTAIN,
     "Show, rotate and retire the keys that sign tokens; create those of an installation."),
    ("migrate", "onsale.maintenance.migrations:migrate", MAINTAIN, "Upgrade the tables in PostgreSQL to this version."),
    ("backup", "onsale.backup.command:backup", MAINTAIN,
     "Back up the tables of all services, the keys and event files, while the suite sells."),
    ("restore", "onsale.backup.command:restore", MAINTAIN,
     "Restore a backup into an empty data directory, or into the empty databases named in ONSALE_POSTGRES_URL."),
    ("snapshot", "onsale.backup.command:snapshot", MAINTAIN,
     "Export seat maps and configuration as CSV: waiting rooms, sections, seats, prices and their changes."),
    ("deploy-config", "onsale.deploy.command:deploy_config", MAINTAIN,
     "Write the configuration of nginx, HAProxy, Prometheus and Alertmanager."),
    ("metrics", "onsale.maintenance.metrics_reference:metrics", MAINTAIN,
     "List every metric: its type, labels and meaning, and the alarms that use it."),
))  # fmt: skip


@cache
def commands() -> tuple[CliCommand, ...]:
    """All commands and groups, panel by panel: ours, then those of features. `GROUP NAME` is a command of a group."""
    found = [*OWN, *(command for feature in installed() for command in feature.commands)]
    panels = list(dict.fromkeys(command.panel for command in found))
    return tuple(sorted(found, key=lambda command: panels.index(command.panel)))


def loaded(command: CliCommand) -> Any:
    """The command itself, or that of a group; a group has what features add to it."""
    module, _, name = command.where.partition(":")
    found = getattr(import_module(module), name)
    if not isinstance(found, typer.Typer):
        alone = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
        alone.command(command.name.rpartition(" ")[2])(found)
        return typer.main.get_command(alone)
    group = typer.main.get_group(found)
    if " " in command.name:
        return group.commands[command.name.rpartition(" ")[2]]
    for more in commands():
        if more.name.startswith(f"{command.name} "):
            group.add_command(loaded(more))
    return group


class CommandGroup(typer.core.TyperGroup):
    """All commands by name. Help shows each one's line from the list; only a command that is called is imported."""

    def __init__(self, **attrs: Any) -> None:
        super().__init__(**attrs)
        self.known = {command.name: command for command in commands() if " " not in command.name}
        for name, command in self.known.items():
            self.add_command(typer.core.TyperCommand(name, help=command.help, rich_help_panel=command.panel))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        if args and args[0] in self.known:
            self.add_command(loaded(self.known[args[0]]), args[0])
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Onsale: waiting room, ticket inventory, orders and live updates for high-demand ticket on-sales.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"onsale {VERSION}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
]


@app.callback()
def _onsale(*, version: Version = False) -> None:
    """A group needs a function of its own."""


def main() -> None:
    """Runs the command line. Output into a pipe is not cut to the width of a screen."""
    if not sys.stdout.isatty():
        os.environ.setdefault("COLUMNS", NON_TERMINAL_COLUMNS)
    try:
        app()
    except Exception as error:
        if not isinstance(error, OperatorError) and not isinstance(error, _operators_errors()):
            raise
        from rich.markup import escape

        from onsale.cli.context import err

        err.print(f"[red]onsale:[/] {escape(str(error))}", soft_wrap=True)
        sys.exit(2)


def _operators_errors() -> tuple[type[Exception], ...]:
    """What else an operator can fix; imported once a command has failed."""
    from shared.errors.database import WrongDatabase
    from shared.messaging.log import LogRefused
    from shared.process.secrets_dir import BadSecrets
    from shared.redis.url import RedisUnfit

    return RedisUnfit, LogRefused, WrongDatabase, BadSecrets, BadFeature
