"""Settlement by event and price type: what was charged and refunded for the tickets of each type between two times.

Every entry of the money ledger is in one event's rows, so the rows sum to the totals of the settlement. A refund is
divided as it was planned, by the tickets that its request names; money that names no ticket has no type.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any

from sqlalchemy import Row, select

from features.reports.schemas import TypeSettlement
from services.orders.model.order import NO_TYPES, OrderLine, TypeName, TypeNames
from services.orders.model.rules import ticket_value_minor
from services.orders.tables import event
from shared.postgres.engine import AsyncConnection, statement
from shared.rules.currencies import rounded_to, split

_MOVED = statement(__package__, "settlement_types")
ENTRIES_PAGE = 10_000  # ids of the ledger that one statement reads
ROWS_MAX = 2_000
COUNTED = {"charge": "tickets", "refund": "returned"}
MOVED = {
    "charge": "charged_minor", "refund": "refunded_minor", "dispute": "disputed_minor",
    "reinstatement": "reinstated_minor",
}  # fmt: skip
CAME, WENT = ("charged_minor", "reinstated_minor"), ("refunded_minor", "disputed_minor")
Tickets = Sequence[tuple[str, int, int, int, int]]
ByType = defaultdict[str | None, Counter[str]]  # sums of one event in one currency, by the type as it is stored


async def read_types(
    connection: AsyncConnection, ids: tuple[int, int], span: Mapping[str, datetime]
) -> list[TypeSettlement]:
    """The rows of the entries with ids from the first to the last that were made in this span, by event. What does not
    fit into `ROWS_MAX` rows is summed without an event.
    """
    found: defaultdict[tuple[str, str], ByType] = defaultdict(_by_type)
    for first_id in range(ids[0], ids[1] + 1, ENTRIES_PAGE):
        bound = {"first_id": first_id, "last_id": min(first_id + ENTRIES_PAGE - 1, ids[1]), **span}
        for row in await connection.execute(_MOVED, bound):
            _add(found[row.event_id or "", row.currency], row)
    kept: dict[tuple[str, str], ByType] = {}
    others: defaultdict[str, ByType] = defaultdict(_by_type)
    rows = 0
    for (event_id, currency), sums in sorted(found.items()):
        rows += len(sums)
        if event_id and rows <= ROWS_MAX:
            kept[event_id, currency] = sums
        else:
            others[currency][None].update(sum(sums.values(), Counter()))
    query = select(event.c.event_id, event.c.price_types).where(event.c.event_id.in_({each for each, _ in kept}))
    types = {row.event_id: TypeNames.read(row.price_types) for row in await connection.execute(query)}
    by_event = [_rows(*place, types.get(place[0], NO_TYPES), sums) for place, sums in kept.items()]
    return [*chain(*by_event, *(_rows(None, currency, NO_TYPES, sums) for currency, sums in others.items()))]


def _by_type() -> ByType:
    return defaultdict(Counter)


def _add(sums: ByType, row: Row[Any]) -> None:
    left_minor, counted, moved = row.amount_minor, COUNTED.get(row.kind, ""), MOVED[row.kind]
    for type_id, tickets, minor in divide(row.amount_minor, row.currency, row.tickets or ()):
        sums[type_id].update({counted: tickets * row.times, moved: minor * row.times})
        left_minor -= minor
    if left_minor:
        sums[None][moved] += left_minor * row.times


def divide(amount_minor: int, currency: str, tickets: Tickets) -> Iterator[tuple[str, int, int]]:
    """The types of these tickets, as `settlement_types.sql` tells them, each with its number and its part of the
    amount: what a refund of the tickets is planned to be, or of a smaller amount as much in proportion. Of a larger
    one a rest is nobody's.
    """
    worths = [
        ticket_value_minor(
            OrderLine(section_id="", quantity=quantity, unit_price_minor=0, paid_minor=paid_minor, returned=before),
            moved, currency,
        )
        for _, paid_minor, quantity, before, moved in tickets
    ]  # fmt: skip
    if sum(worths) > amount_minor:
        worths = split(amount_minor, worths, rounded_to(currency))
    for (type_id, *_, moved), minor in zip(tickets, worths, strict=True):
        yield type_id, moved, minor


def _rows(event_id: str | None, currency: str, types: TypeNames, stored: ByType) -> Iterator[TypeSettlement]:
    """In the order of the event file; then types that it has no more, and last what has none."""
    named: defaultdict[TypeName | None, Counter[str]] = defaultdict(Counter)
    for type_id, sums in stored.items():
        named[None if type_id is None else types.find(type_id)].update(sums)
    places = {each: (n, "") for n, each in enumerate(types)} | {None: (len(types) + 1, "")}
    for each in sorted(named, key=lambda each: places.get(each) or (len(types), each.type_id if each else "")):
        row = {name: named[each][name] for name in (*COUNTED.values(), *MOVED.values())}
        came, went = (row[a] + row[b] for a, b in (CAME, WENT))
        yield TypeSettlement(
            event_id=event_id, type_id=each and each.type_id, name=each and each.name, currency=currency, **row,
            net_minor=came - went,
        )  # fmt: skip
