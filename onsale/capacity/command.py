"""`onsale plan`: calculates what a sale needs, as tables or as JSON. Contacts no suite.

Prints a plan: the sale, its two moments, services, databases and network, and what breaks first.
"""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any

import orjson
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from onsale.capacity.calculation import DatabaseResources, Plan, RedisResources, ServiceResources, plan_sale
from onsale.capacity.sale import Coefficients, Sale, coefficients
from onsale.cli.context import out

HOUR_S = 3600
INPUT_ROWS = {
    "join": "joins/s",
    "claim": "passes/s",
    "status": "polls of their status/s",
    "read": "reads of the public line/s",
    "sign": "heartbeats/s",
    "seats": "seat pages/s",
    "hold": "holds/s",
    "order": "orders/s",
    "frame": "frames to listeners/s",
}


def print_plan(out: Console, plan: Plan, known: Coefficients) -> None:
    """Prints the whole plan."""
    sale = plan.sale
    out.print(
        f"Call {_number(sale.rate_per_s)} fans a second (rate_per_s), {sale.max_active:,} inside at once (max_active): "
        f"{sale.admissions:,} are called, {sale.orders:,.0f} buy, {sale.left_out:,} are in line until it is sold out.",
        soft_wrap=True,
    )
    for table in (_moments(plan), _services(plan), _databases(plan), _limits(plan)):
        out.print()
        out.print(table)
    out.print()
    first = plan.limits[0]
    verb = "breaks" if first.share > 1 else "would break"
    out.print(f"{first.name[0].upper()}{first.name[1:]} {verb} first. What helps: {first.remedy}.", soft_wrap=True)
    if plan.untested:
        beyond = (f"{_number(one.planned)} {one.name} (measured: {_number(one.tested)})" for one in plan.untested)
        out.print(f"Never measured: {', '.join(beyond)}.", soft_wrap=True)
    dates = sorted(measured.date for measured in known.measurements.values())
    machines = "; ".join(sorted({measured.machine for measured in known.measurements.values()}))
    out.print(f"Calculated from measurements of {dates[0]} to {dates[-1]} on {machines}.", soft_wrap=True)


def _moments(plan: Plan) -> Table:
    table = _table("", "end of the first minute", "when all wait")
    rush, height = plan.moments
    table.add_row("places waiting", _number(rush.waiting), _number(height.waiting))
    table.add_row("open streams", _number(rush.streams), _number(height.streams))
    for name, label in INPUT_ROWS.items():
        table.add_row(label, _number(rush.per_s[name]), _number(height.per_s[name]))
    return table


def _services(plan: Plan) -> Table:
    cores = ("busy cores, first minute", "busy cores, all wait", "core hours in all")
    table = _table("", "processes", *cores, "number decided by")
    for one in plan.services:
        table.add_row(one.name, f"{one.processes:,}", *_cores(one), one.decided_by)
    for name, part in (("PostgreSQL", plan.database), ("Redis", plan.redis)):
        table.add_row(name, "", *_cores(part), "")
    in_all = (f"{_number(plan.cores)} in the harder moment", "", _number(plan.whole_s / HOUR_S))
    table.add_row("in all", f"{plan.processes:,}", *in_all, "")
    return table


def _cores(part: ServiceResources | RedisResources | DatabaseResources) -> tuple[str, str, str]:
    return _number(part.cores_rush), _number(part.cores_height), _number(part.whole_s / HOUR_S)


def _databases(plan: Plan) -> Table:
    streams, redis, database, network = plan.streams, plan.redis, plan.database, plan.network
    table = _table("", "", "of it")
    table.add_row(
        "Redis memory", f"{_number(redis.memory_mib)} MiB",
        f"line {_number(redis.line_mib)}, holds and orders {_number(redis.holds_mib)}, "
        f"event log {_number(redis.log_mib)}",
    )  # fmt: skip
    table.add_row(
        "database writes", f"{_number(database.writes_per_s)} rows/s",
        f"WAL {_number(database.wal_mib_per_s)} MiB/s, {_number(database.disk_gib)} GiB on disk after the sale, "
        f"{database.connections:,} connections",
    )  # fmt: skip
    table.add_row(
        "streams of a notifier", f"{streams.per_process:,}",
        f"{_number(streams.memory_mib)} MiB in all notifiers; a frame is {_number(streams.frame_bytes)} bytes",
    )  # fmt: skip
    table.add_row(
        "bandwidth to fans", f"{_number(network.gbit_per_s)} Gbit/s",
        f"frames {_number(network.frames_gbit_per_s)}, answers {_number(network.answers_gbit_per_s)}",
    )  # fmt: skip
    table.add_row("sockets at the balancers", f"{network.sockets:,}", "one of each fan, one to a notifier a stream")
    return table


def _limits(plan: Plan) -> Table:
    table = _table("what breaks first", "needed", "available", "share")
    for one in plan.limits:
        table.add_row(
            one.name, f"{_number(one.needed)} {one.unit}".strip(), f"{_number(one.limit)}", f"{one.share:,.0%}"
        )
    return table


def _table(*headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    for n, heading in enumerate(headings):
        is_text = n == 0 or heading in ("of it", "number decided by")
        table.add_column(heading, justify="left" if is_text else "right", no_wrap=True)
    return table


def _number(value: float) -> str:
    """Three significant digits."""
    if value >= 100 or value == 0:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.3g}"


FANS_MAX, TICKETS_MAX, MINUTES_MAX = 1_000_000_000, 100_000_000, 10_080
standalone = typer.Typer(add_completion=False)


@standalone.command()
def plan(
    fans: Annotated[int, typer.Option(min=1, max=FANS_MAX, help="Fans who come.")],
    tickets: Annotated[int, typer.Option(min=1, max=TICKETS_MAX, help="Tickets on sale.")],
    minutes: Annotated[float, typer.Option(min=1, max=MINUTES_MAX, help="Minutes until all tickets are sold.")] = 60,
    seats_per_order: Annotated[float, typer.Option(min=1, max=100, help="Tickets in an order, on average.")] = 2,
    checkout_minutes: Annotated[
        float, typer.Option(min=0.1, max=MINUTES_MAX, help="Minutes from call to payment, on average.")
    ] = 5,
    buying: Annotated[float, typer.Option(min=0.01, max=1, help="Share of those called who buy.")] = 0.8,
    first_minute: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the fans who come in the first minute.")
    ] = 0.5,
    streams_per_fan: Annotated[float, typer.Option(min=0, max=10, help="Open live streams per fan in line.")] = 1,
    sections: Annotated[int, typer.Option(min=1, max=1000, help="Sections of the venue.")] = 20,
    window_ms: Annotated[int, typer.Option(min=50, max=10_000, help="room.updates.window_ms of the event file.")] = 250,
    liveness_s: Annotated[int, typer.Option(min=2, max=600, help="room.liveness_window_s of the event file.")] = 30,
    polls_per_s: Annotated[float, typer.Option(min=1, max=1e6, help="GATEWAY_POLLS_PER_S of the gateways.")] = 2000,
    minutes_before: Annotated[
        float, typer.Option(min=0, max=MINUTES_MAX, help="Minutes that the line is open before the sale starts.")
    ] = 0,
    seated: Annotated[bool, typer.Option(help="Fans inside look at seats; general admission has none.")] = True,
    cached: Annotated[
        bool,
        typer.Option(
            "--cache/--no-cache", help="A cache in front answers reads of the public line, as our balancers do."
        ),
    ] = True,
    busy: Annotated[
        float, typer.Option(min=0.05, max=0.95, help="Share of a core that a process may use in the harder moment.")
    ] = 0.6,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with every coefficient.")] = False,
) -> None:
    """Plan the capacity for a sale: rate, processes, memory, writes, streams, bandwidth, and what breaks first.

    Calculated from figures measured on one small machine (see docs/operate/capacity.md). Measure on yours: make bench.

    Example: onsale plan --fans 1000000 --tickets 50000
    """
    sale = Sale(
        fans, tickets, minutes=minutes, seats_per_order=seats_per_order, checkout_minutes=checkout_minutes,
        buying=buying, first_minute=first_minute, streams_per_fan=streams_per_fan, sections=sections,
        window_ms=window_ms, liveness_s=liveness_s, busy=busy, minutes_before=minutes_before, polls_per_s=polls_per_s,
        seated=seated, cached=cached,
    )  # fmt: skip
    known = coefficients()
    made = plan_sale(sale, known)
    if as_json:
        typer.echo(orjson.dumps(as_document(made, known), option=orjson.OPT_INDENT_2).decode())
    else:
        print_plan(out, made, known)


def answer_for(screen: Console, arguments: Sequence[str], known: Coefficients) -> None:
    """Prints what `onsale plan` answers to these arguments, calculated from the given coefficients."""
    with typer.main.get_command(standalone).make_context("plan", list(arguments)) as context:
        values = {name: value for name, value in context.params.items() if name != "as_json"}
    print_plan(screen, plan_sale(Sale(**values), known), known)


def as_document(made: Plan, known: Coefficients) -> dict[str, Any]:
    """The plan as JSON: its values, the totals, and the coefficients it was calculated with."""
    sale, totals = made.sale, {"cores": made.cores, "processes": made.processes, "core_hours": made.whole_s / HOUR_S}
    derived = {name: getattr(sale, name) for name in ("admissions", "rate_per_s", "max_active", "orders", "left_out")}
    fields = dataclasses.asdict(made)
    fields["sale"] |= derived
    fields["redis"]["memory_mib"] = made.redis.memory_mib
    fields["network"]["gbit_per_s"] = made.network.gbit_per_s
    for limit, one in zip(fields["limits"], made.limits, strict=True):
        limit["share"] = one.share
    return {**fields, "totals": totals, "counted_with": dataclasses.asdict(known)}
