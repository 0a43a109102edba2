"""`onsale plan`: calculates what a sale needs, as tables or as JSON. Contacts no suite."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console

from onsale.capacity.calculation import plan_sale
from onsale.capacity.coefficients import Coefficients, coefficients
from onsale.capacity.report import HOUR_S, print_plan
from onsale.capacity.resources import Plan
from onsale.capacity.sale import Sale
from onsale.cli.context import out

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
