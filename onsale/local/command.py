"""`onsale up`: the whole suite on this machine."""

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.panel import Panel
from rich.table import Table

from onsale import event_files
from onsale.cli.context import DATA_DIR, DataDir, out, run_async
from onsale.data_dir import ADMIN_KEY_FILE
from onsale.imports import import_module
from shared.runtime.descriptors import raise_descriptor_limit
from shared.runtime.logging import write_json_lines

if TYPE_CHECKING:
    from onsale.local.suite_services import Suite

USUAL_MAX = 4
EXAMPLES = tuple(Path(__file__).parents[1] / "examples" / f"{name}.yaml" for name in ("arena", "flash"))


def usual_processes() -> int:
    """How many processes sell most on this machine: one for two cores, which the databases, the payment sandbox and a
    crowd on the same machine share with it. Elsewhere than on Linux the kernel gives all connections to one process.
    """
    return max(1, min(USUAL_MAX, (os.cpu_count() or 1) // 2)) if sys.platform == "linux" else 1


def up(
    port: Annotated[int, typer.Option(min=1, max=65535, help="The one port of the suite.")] = 8000,
    data_dir: DataDir = DATA_DIR,
    event: Annotated[
        list[Path] | None, typer.Option(help="Event file to apply; a new event's room is opened. May repeat.")
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Open two example on-sales: an arena with seats, and a flash sale.")
    ] = False,
    processes: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=8,
            help="Processes with all services each, on the one port; one that ends is started again, and limits hold "
            "for all together. Without it half as many as the machine has cores, at most 4.",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    verbose: Annotated[bool, typer.Option("--verbose", help="Log a JSON line for each request.")] = False,
) -> None:
    """Run the whole suite on this machine: PostgreSQL, Valkey, services, payment sandbox. Ctrl-C stops it.

    Data stays in the data directory; the next start continues with it. A database named in ONSALE_POSTGRES_URL or
    ONSALE_REDIS_URL is used as it is; otherwise the program on PATH is started, or the one that came with the
    installation.

    Example: onsale up --demo
    """
    import_module("onsale.local.up")
    from onsale.local.suite_services import Suite
    from onsale.local.up import run

    write_json_lines(logging.INFO if verbose else logging.WARNING)
    raise_descriptor_limit()
    events = {path: event_files.read(path) for path in [*(event or []), *(EXAMPLES if demo else ())]}
    suite = Suite(
        data_dir=data_dir,
        events=list(events.values()),
        pictures={each.event_id: event_files.pictures(path, each) for path, each in events.items()},
        port=port,
        host=host,
        processes=processes or usual_processes(),
        verbose=verbose,
        report=lambda line: out.print(f"[dim]{line}[/]"),
    )
    run_async(run(suite, started=lambda: _print_addresses(suite)))


def _print_addresses(suite: "Suite") -> None:
    table = Table.grid(padding=(0, 2))
    table.add_row("Fan page", f"[bold]{suite.url}/[/]")
    for event in suite.events:
        table.add_row("", f"{suite.url}/e/{event.event_id}  [dim]{event.name}[/]")
    if not suite.events:
        table.add_row("", "[dim]to open a sale: --demo, --event FILE, or onsale events apply FILE[/]")
    if suite.console_link:
        table.add_row("Console", f"{suite.url}/console/")
    table.add_row("Admin API", f"{suite.url}/admin/…")
    table.add_row("Admin key", f"{suite.data_dir / ADMIN_KEY_FILE}")
    table.add_row("OpenAPI", f"{suite.url}/openapi/fans.json  {suite.url}/openapi/operators.json")
    table.add_row("Databases", f"{suite.data_dir / 'engines.json'}")
    out.print(Panel(table, title="[green]Onsale is running[/]", subtitle="Ctrl-C stops it", expand=False))
    if suite.console_link:
        out.print(f"The console, signed in, once:\n{suite.console_link}", soft_wrap=True)  # a panel would cut it
