"""Price types: of none there are more tickets than its number in all, and each ticket keeps its type and price.

What was acknowledged for a ticket is what the reservation has, until its fan changes it; and the tickets of a sold
reservation are those of its order.
"""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from onsale.history.checks.check import Books, Check, Line
from onsale.history.checks.seats import TYPES

Priced = tuple[str, str, int]  # place, price type, price
SOLD = "confirmed"


class _Acknowledged(NamedTuple):
    """The tickets that were acknowledged last."""

    number: int
    event_id: str
    tickets: Mapping[Priced, int]


class Types(Check):
    """Histories are compared with reservations, reservations with numbers in all and with orders."""

    TITLE = "price types keep their numbers and prices"
    KINDS = frozenset({"held", "reservation", "hold_extended", "kept", "types_changed", "unanswered"})

    def __init__(self) -> None:
        super().__init__()
        self._acknowledged: dict[str, _Acknowledged] = {}
        self._unknown: set[str] = set()  # a change of their types was not answered

    def read(self, number: int, line: Line) -> None:
        reservation_id = line.get("reservation_id", "")
        if line["what"] == "unanswered":
            if line["of"] == TYPES:
                self._unknown.add(reservation_id)
        elif tickets := line.get("tickets"):
            self.compared += 1
            counts = Counter[Priced]()
            for ticket in tickets:
                place = ticket.get("seat_id") or ticket["section_id"]
                counts[place, ticket["type_id"], ticket["unit_price_minor"]] += ticket["quantity"]
            self._acknowledged[reservation_id] = _Acknowledged(number, line["event_id"], counts)

    async def compare(self, books: Books) -> None:
        events = sorted({*(known.event_id for known in self._acknowledged.values()), *books.events})
        ordered = dict[str, Counter[tuple[str, str]]]()
        async for row in books.rows("orders", "order_types", events):
            ordered.setdefault(row["reference"], Counter())[row["place"], row["stored_id"]] += row["quantity"]
        async for row in books.rows("inventory", "ticket_types", events):
            self._compare_acknowledged(row)
            if row["status"] == SOLD and row["order_reference"] in ordered:
                self._compare_order(row, ordered[row["order_reference"]])
        async for row in books.rows("inventory", "sold_types", events):
            name, given = f"price type {row['type_id']} of {row['event_id']}", row["given"]
            self.violated(f"{given} tickets of {name} are held or sold, there are {row['capacity']}")

    def _compare_acknowledged(self, row: Line) -> None:
        known = self._acknowledged.get(row["reservation_id"])
        if known is None or row["reservation_id"] in self._unknown:
            return
        place, price = row["place"], row["unit_price_minor"]
        if row["quantity"] > known.tickets.get((place, row["type_id"], price), 0):
            has = f"{row['quantity']} tickets of the price type {row['type_id']} at {price} for {place}"
            self.violated(f"reservation {row['reservation_id']} has {has}, which were not acknowledged", known.number)

    def _compare_order(self, row: Line, ordered: Mapping[tuple[str, str], int]) -> None:
        if row["quantity"] > ordered.get((row["place"], row["stored_id"]), 0):
            what = f"{row['place']} at the price type {row['type_id']}"
            self.violated(f"order {row['order_reference']} does not have {what}, which its reservation has")
