"""`onsale doctor`: one line a check, `ok`, `look` or `broken`, and what to do."""

import asyncio
import json
from collections import Counter
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from onsale.admin_client import AdminClient
from onsale.cli.context import for_suite, out, target, with_admin
from onsale.doctor.events import check_events
from onsale.doctor.findings import Finding
from onsale.doctor.here import check_here
from onsale.doctor.services import check_services
from shared.contracts.admin.checks import Verdict

COLOURS: dict[Verdict, str] = {"ok": "green", "look": "yellow", "broken": "bold red"}


@for_suite
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON, for another program.")] = False,
    problems: Annotated[bool, typer.Option("--problems", help="Print only what is not ok.")] = False,
) -> None:
    """Check an installation: databases, clocks, keys, limits, events, disk, certificate, Prometheus' targets.

    Each service checks itself, so this works from anywhere that reaches the admin API. look: perhaps meant so. broken:
    a sale must not begin like this. Exit code 1 if something is broken. No secret is printed.

    Example: onsale doctor --url https://tickets.example
    """
    findings = with_admin(_all_findings)
    if as_json:
        rows = [finding.check.model_dump() | {"found_by": finding.found_by} for finding in findings]
        out.print_json(json.dumps(rows))
    else:
        _print(findings, only_problems=problems)
    if any(finding.check.verdict == "broken" for finding in findings):
        raise typer.Exit(1)


async def _all_findings(admin: AdminClient) -> list[Finding]:
    services, events, here = await asyncio.gather(
        check_services(admin), check_events(admin), check_here(target().url, target().data_dir)
    )
    return [*services, *here, *events]


def _print(findings: list[Finding], *, only_problems: bool) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column(width=6)
    table.add_column(max_width=24)
    table.add_column(overflow="fold")
    for finding in findings:
        check = finding.check
        if check.verdict == "ok" and only_problems:
            continue
        text = f"{escape(check.found)} [dim]({escape(finding.where)})[/]"
        advice = f"\n→ {escape(check.advice)}" if check.advice else ""
        colour = COLOURS[check.verdict]
        table.add_row(f"[{colour}]{check.verdict}[/]", escape(check.subject), text + advice)
    out.print(table)
    counts = Counter(finding.check.verdict for finding in findings)
    out.print(f"{counts['ok']} ok, {counts['look']} to look at, {counts['broken']} broken")
