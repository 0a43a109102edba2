"""Each order is charged once or has its money back: by the provider's own book, which agrees with the ledger.

The databases of a sale and its payment provider's book, opened for reading only.
"""

from collections import defaultdict
from typing import Any, NamedTuple

from onsale.history.checks.check import Books, Check, Line

UNDECIDED = frozenset({"pending", "late_paid", "review"})  # their money may still move either way


class _Charge(NamedTuple):
    """One charge: what was taken, refunded, and withdrawn for a dispute, in minor units."""

    taken: int
    refunded: int
    withdrawn: int

    @property
    def left(self) -> int:
        return self.taken - self.refunded - self.withdrawn

    def __str__(self) -> str:
        return f"{self.taken} taken, {self.refunded} refunded, {self.withdrawn} withdrawn"


NOTHING = _Charge(0, 0, 0)
_Charges = dict[str, _Charge]
"""The charges of one order, by the provider's id."""


class Money(Check):
    """Compares orders of the events with the provider's charges, by their references, and charge by charge."""

    TITLE = "each order is charged once or not at all"
    KINDS = frozenset({"joined", "held", "ordered", "order"})

    def __init__(self) -> None:
        super().__init__()
        self._events: dict[str, int] = {}
        self._numbers: dict[str, int] = {}

    def read(self, number: int, line: Line) -> None:
        if event_id := line.get("event_id"):
            self._events.setdefault(event_id, number)
        if reference := line.get("reference"):
            self._numbers[reference] = number

    async def compare(self, books: Books) -> None:
        if books.provider is None:
            return
        events, charged, booked = (
            sorted({*self._events, *books.events}),
            _by_reference(books.provider),
            defaultdict[str, _Charges](dict),
        )
        async for row in books.rows("orders", "booked_charges", events):
            charge = _Charge(row["charged_minor"], row["refunded_minor"], row["withdrawn_minor"])
            booked[row["reference"]][row["charge_ref"]] = charge
        async for row in books.rows("orders", "orders_of_events", events):
            self.compared += 1
            charges = charged.pop(row["reference"], {})
            if row["status"] not in UNDECIDED:
                self._compare(row, charges, booked[row["reference"]])
        async for row in books.rows_of("orders", "known_references", charged):
            del charged[row["reference"]]
        for reference, charges in sorted(charged.items()):
            self.violated(f"the provider has {_left(charges)} for {reference}, which is no order")

    def _compare(self, row: Any, charges: _Charges, booked: _Charges) -> None:
        expected, left = _expected_minor(row), _left(charges)
        numbers = [self._numbers[row["reference"]]] if row["reference"] in self._numbers else []
        name = f"order {row['reference']} is {row['status']}"
        kept = sum(charge.left > 0 for charge in charges.values())
        if left != expected:
            self.violated(f"{name}, and the provider has {left} instead of {expected}", *numbers)
        elif kept > 1:
            self.violated(f"{name}, and was charged {kept} times", *numbers)
        else:
            for differs in sorted(charges.keys() | booked.keys()):
                theirs, ours = charges.get(differs, NOTHING), booked.get(differs, NOTHING)
                if theirs != ours:
                    self.violated(f"{name}, the provider has {theirs} of charge {differs}, the ledger {ours}", *numbers)


def _by_reference(charges: list[dict[str, Any]]) -> dict[str, _Charges]:
    found: dict[str, _Charges] = defaultdict(dict)
    for charge in charges:
        if charge["captured_minor"]:
            withdrawn_minor = (charge.get("dispute") or {}).get("withdrawn_minor", 0)
            own = _Charge(charge["captured_minor"], charge["refunded_minor"], withdrawn_minor)
            found[charge["reference"]][charge["id"]] = own
    return dict(found)


def _left(charges: _Charges) -> int:
    return sum(charge.left for charge in charges.values())


def _expected_minor(row: Any) -> int:
    """What the provider must have of an order that has ended so, less than nothing where a bank took back what had been
    refunded before.
    """
    if row["status"] == "confirmed":
        return int(row["total_minor"] - row["disputed_minor"])
    left_minor = int(row["total_minor"] - row["refunded_minor"] - row["disputed_minor"])
    if row["status"] == "partially_refunded":
        return left_minor
    return min(0, left_minor) if row["status"] == "refunded" else 0
