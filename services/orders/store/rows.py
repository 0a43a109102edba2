"""An order as rows: what its JSON columns hold, and back. What is the usual value of a field is left out of them.

A line holds its tickets one by one, an attempt and a command what cannot be computed from the order and their place.
"""

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any

from services.orders.model.order import (
    Adjustment,
    Attempt,
    Charge,
    JournalEntry,
    LineTicket,
    Order,
    OrderLine,
    Refund,
    TicketReturn,
)

Row = dict[str, Any]
_TABLES = {"charges": Charge, "refunds": Refund, "returns": TicketReturn, "extras": Adjustment}


def lines_json(lines: Iterable[OrderLine]) -> list[Row]:
    return [
        _compact(line, "line_no", "quantity", "tickets") | {"tickets": [_compact(one) for one in line.tickets]}
        for line in lines
    ]


def attempts_json(attempts: Iterable[Attempt]) -> list[Row]:
    return [_compact(attempt, "n", "amount_minor", "currency", "provider_key") for attempt in attempts]


def journal_json(journal: Iterable[JournalEntry]) -> list[Row]:
    return [_compact(command) for command in journal]


def read_order(row: Mapping[str, Any]) -> Order:
    """The order that `read.sql` found."""
    values = {name: value for name, value in row.items() if name not in ("owner", "epoch")}
    for name, part in _TABLES.items():
        values[name] = tuple(part(**each) for each in row[name])
    values["lines"] = tuple(_line(n, line) for n, line in enumerate(row["lines"], start=1))
    values["attempts"] = tuple(_attempt(row, n, attempt) for n, attempt in enumerate(row["attempts"], start=1))
    values["journal"] = tuple(JournalEntry(**command) for command in row["journal"])
    return Order(**values)


def provider_key(reference: str, n: int) -> str:
    """The key of the n-th attempt at its provider."""
    return f"{reference}:{n}"


def _line(n: int, line: Row) -> OrderLine:
    tickets = tuple(LineTicket(**ticket) for ticket in line["tickets"])
    return OrderLine(**{**line, "tickets": tickets}, quantity=len(tickets), line_no=n)


def _attempt(row: Mapping[str, Any], n: int, attempt: Row) -> Attempt:
    return Attempt(
        **attempt, n=n, amount_minor=row["total_minor"], currency=row["currency"],
        provider_key=provider_key(row["reference"], n),
    )  # fmt: skip


def _compact(part: Any, *without: str) -> Row:
    return {
        name: value
        for name, default in _defaults(type(part))
        if name not in without and (value := getattr(part, name)) != default
    }


_known: dict[type, tuple[tuple[str, Any], ...]] = {}


def _defaults(kind: type) -> tuple[tuple[str, Any], ...]:
    """The fields of a part with their usual values; `MISSING` equals no value."""
    if kind not in _known:
        _known[kind] = tuple((one.name, MISSING if one.default is MISSING else one.default) for one in fields(kind))
    return _known[kind]
