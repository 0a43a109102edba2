"""Each order is charged exactly once, or has its money back: by the provider's own book."""

from collections import defaultdict
from typing import Any, NamedTuple

from onsale.history.checks.books import Books
from onsale.history.checks.check import Check, Line

UNDECIDED = frozenset({"pending", "late_paid", "review"})  # their money may still move either way


class _Charges(NamedTuple):
    """What the provider has of one order: its money now, and how many charges were not given back."""

    net_minor: int
    kept: int


class Money(Check):
    """Compares orders of the events with the provider's charges, by their references."""

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
        charged = _by_reference(books.provider)
        async for row in books.rows("orders", "orders_of_events", sorted(self._events)):
            self.compared += 1
            charges = charged.pop(row["reference"], _Charges(0, 0))
            if row["status"] not in UNDECIDED:
                self._compare(row, charges)
        async for row in books.rows_of("orders", "known_references", charged):
            del charged[row["reference"]]
        for reference, charges in sorted(charged.items()):
            self.violated(f"the provider has {charges.net_minor} for {reference}, which is no order")

    def _compare(self, row: Any, charges: _Charges) -> None:
        expected = _expected_minor(row)
        numbers = [self._numbers[row["reference"]]] if row["reference"] in self._numbers else []
        name = f"order {row['reference']} is {row['status']}"
        if charges.net_minor != expected:
            self.violated(f"{name}, and the provider has {charges.net_minor} instead of {expected}", *numbers)
        elif charges.kept > 1:
            self.violated(f"{name}, and was charged {charges.kept} times", *numbers)


def _by_reference(charges: list[dict[str, Any]]) -> dict[str, _Charges]:
    found: dict[str, _Charges] = defaultdict(lambda: _Charges(0, 0))
    for charge in charges:
        if charge["captured_minor"]:
            net, kept = found[charge["reference"]]
            withdrawn_minor = (charge.get("dispute") or {}).get("withdrawn_minor", 0)
            own = charge["captured_minor"] - charge["refunded_minor"] - withdrawn_minor
            found[charge["reference"]] = _Charges(net + own, kept + (own > 0))
    return dict(found)


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
