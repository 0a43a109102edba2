"""`onsale plan`: what a sale needs, for people or as JSON. Nothing is asked and nothing changed."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console

from onsale.capacity.coefficients import Coefficients, coefficients
from onsale.capacity.counting import planned
from onsale.capacity.needs import Plan
from onsale.capacity.printed import show
from onsale.capacity.sale import Sale
from onsale.commands.context import out

FANS_MAX, TICKETS_MAX, MINUTES_MAX = 1_000_000_000, 100_000_000, 10_080
alone = typer.Typer(add_completion=False)


@alone.command()
def plan(
    fans: Annotated[int, typer.Option(min=1, max=FANS_MAX, help="People who come.")],
    tickets: Annotated[int, typer.Option(min=1, max=TICKETS_MAX, help="Tickets there are.")],
    minutes: Annotated[float, typer.Option(min=1, max=MINUTES_MAX, help="Minutes until all of them are sold.")] = 60,
    seats_per_order: Annotated[float, typer.Option(min=1, max=100, help="Tickets in an order, on average.")] = 2,
    checkout_minutes: Annotated[
        float, typer.Option(min=0.1, max=MINUTES_MAX, help="From the call to the payment, on average.")
    ] = 5,
    buying: Annotated[float, typer.Option(min=0.01, max=1, help="Share of those called who buy.")] = 0.8,
    first_minute: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the fans who come in the first minute.")
    ] = 0.5,
    streams_per_fan: Annotated[float, typer.Option(min=0, max=10, help="Tabs that listen, per fan in line.")] = 1,
    sections: Annotated[int, typer.Option(min=1, max=1000, help="Sections of the venue.")] = 20,
    window_ms: Annotated[int, typer.Option(min=50, max=10_000, help="room.updates.window_ms.")] = 250,
    liveness_s: Annotated[int, typer.Option(min=2, max=600, help="room.liveness_window_s.")] = 30,
    busy: Annotated[
        float, typer.Option(min=0.05, max=0.95, help="How busy a process may keep its core in the hardest moment.")
    ] = 0.6,
    as_json: Annotated[bool, typer.Option("--json", help="For programs, with every coefficient.")] = False,
) -> None:
    """How much of everything a sale needs: rate, processes, memory, writes, streams, bandwidth; and what breaks first.

    Arithmetic over figures measured on one small machine (see docs/capacity.md). Measure on yours: make bench.
    """
    sale = Sale(fans, tickets, minutes, seats_per_order, checkout_minutes, buying, first_minute, streams_per_fan,
                sections, window_ms, liveness_s, busy)  # fmt: skip
    known = coefficients()
    made = planned(sale, known)
    if as_json:
        typer.echo(orjson.dumps(document(made, known), option=orjson.OPT_INDENT_2).decode())
    else:
        show(out, made, known)


def answer(screen: Console, words: Sequence[str], known: Coefficients) -> None:
    """What the command answers to these words, from other figures than those that came with this version."""
    with typer.main.get_command(alone).make_context("plan", list(words)) as context:
        asked = {name: value for name, value in context.params.items() if name != "as_json"}
    show(screen, planned(Sale(**asked), known), known)


def document(made: Plan, known: Coefficients) -> dict[str, Any]:
    """The whole plan, what follows from it, and what it was counted with."""
    sale, totals = made.sale, {"cores": made.cores, "processes": made.processes}
    follows = {name: getattr(sale, name) for name in ("admissions", "rate_per_s", "max_active", "orders", "left_out")}
    told = dataclasses.asdict(made)
    told["sale"] |= follows
    told["engine"]["memory_mib"] = made.engine.memory_mib
    told["network"]["gbit_per_s"] = made.network.gbit_per_s
    for limit, one in zip(told["limits"], made.limits, strict=True):
        limit["share"] = one.share
    return {**told, "totals": totals, "counted_with": dataclasses.asdict(known)}
