"""What price types cost a reservation: the requests of P4 where the event has none, and where every fan buys one ticket
at the usual price and one of another of four types, each with a number in all.

`ONSALE_BENCH_BEFORE=/path/to/an/earlier/checkout` adds that code, with no types, as a side in the same run.
"""

import itertools
import os
import statistics
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache, partial
from typing import Any

from bench.harness import system
from bench.harness.load import LoadResult
from bench.harness.measurement import (
    CheckFailed,
    Claim,
    Effort,
    Figures,
    Finding,
    Side,
    Target,
    Testbed,
    Trial,
    one_round,
)
from bench.stock.reservations import EVENT, compare, reservation_bodies, reservation_request, reservation_requests
from shared.contracts.event_file import EventFile
from shared.contracts.event_parts.price_types import PriceType

US_PER_S = 1_000_000
BEFORE, NONE, FOUR = "before there were types", "no types", "four types"
OTHERS = ("child", "senior", "student")
TYPES = [
    PriceType(type_id="adult", name="Adult"),
    *(PriceType(type_id=each, name=each.title(), percent="50", quota=1_000_000) for each in OTHERS),
]
PRICED = EVENT.model_copy(update={"price_types": TYPES})


def price_types() -> Finding:
    """The finding, before it is measured."""
    return Finding(
        key="P4 types",
        title="reservations with price types",
        settings=[
            "Events, requests and process as in P4; the sides take turns, round by round. Processor time is that of "
            "inventory, PostgreSQL and Valkey, the median of the rounds.",
            f"{FOUR}: every fan takes one ticket of the usual type and one of {', '.join(OTHERS)} in turn; each "
            "has a number in all that is counted with the seats.",
            f"{BEFORE}: the same service from an earlier checkout (`ONSALE_BENCH_BEFORE`), where one was given.",
        ],
        find=find,
    )


async def find(testbed: Testbed, effort: Effort) -> Figures:
    """Runs the sides alternately."""
    before = os.environ.get("ONSALE_BENCH_BEFORE")
    sides: dict[str, Side] = {
        **({BEFORE: Side(BEFORE, _opened(EVENT, {"PYTHONPATH": before}))} if before else {}),
        NONE: Side(NONE, _opened(EVENT, {})),
        FOUR: Side(FOUR, _opened(PRICED, {})),
    }
    us: dict[str, list[float]] = {name: [] for name in sides}
    checked: list[str] = []
    for _ in range(effort.rounds):
        for name, side in sides.items():
            done = await one_round(testbed, side, effort)
            us[name].append(US_PER_S / done.per_cpu_s)
            checked = done.checked
    median = {name: statistics.median(each) for name, each in us.items()}
    base = next(iter(sides))
    rows: list[tuple[str, ...]] = [
        (name, f"{median[name]:,.0f}", f"{median[name] / median[base]:.2f} ×", f"{min(each):,.0f} to {max(each):,.0f}")
        for name, each in us.items()
    ]
    claims = [
        Claim(f"a reservation, {name}: processor time", f"{median[name]:,.0f} µs", f"{base} {median[base]:,.0f} µs",
              f"{median[name] / median[base]:.2f} ×")
        for name in sides if name != base
    ]  # fmt: skip
    return Figures(("price types", "processor µs a reservation", f"to {base}", "round by round"), rows, claims, checked)


def _opened(event: EventFile, settings: dict[str, str]) -> Callable[[Trial], AbstractAsyncContextManager[Target]]:
    return partial(_open, event=event, settings=settings)


@asynccontextmanager
async def _open(trial: Trial, *, event: EventFile, settings: dict[str, str]) -> AsyncIterator[Target]:
    ports = await system.serve(trial, ("inventory",), settings)
    await system.apply_to_inventory(event, ports["inventory"])

    async def check(result: LoadResult) -> list[str]:
        on_disk = await trial.count("SELECT count(*) FROM inventory.reservation WHERE event_id = $1", EVENT.event_id)
        seats = await trial.count("SELECT count(*) FROM inventory.seat WHERE status = 'held'")
        ga = await trial.count("SELECT sum(capacity - seats_remaining) FROM inventory.section WHERE kind = 'ga'")
        checked = compare(result, on_disk=on_disk, seats=seats, ga=ga)
        if event is PRICED:
            of_types = await trial.count(
                "SELECT sum(capacity - seats_remaining) FROM inventory.section WHERE kind = 'type'"
            )
            if of_types != on_disk:
                raise CheckFailed(f"{on_disk} reservations with a ticket of another type, {of_types} counted")
            checked.append("types counted = tickets of types")
        return checked

    yield Target(ports["inventory"], priced_requests() if event is PRICED else reservation_requests(), False, check)


@cache
def priced_requests() -> list[bytes]:
    """The requests of P4, each with one ticket of another type."""
    types = itertools.cycle(OTHERS)
    bodies = (_priced(body, type_id) for body, type_id in zip(reservation_bodies(), types, strict=False))
    return [reservation_request(number, body) for number, body in enumerate(bodies, 1)]


def _priced(body: dict[str, Any], type_id: str) -> dict[str, Any]:
    if seats := body.get("seats"):
        return {"seats": seats, "types": {seats[1]: type_id}}
    section_id = body["ga"][0]["section_id"]
    one = {"section_id": section_id, "quantity": 1}
    return {"ga": [one, {**one, "type_id": type_id}]}
