"""No place is acknowledged to two fans at overlapping times, and no section sells more than it has.

A reservation certainly holds its places from its answer on until the first moment at which it may have ended: its
deadline, a request that may end it (release, cancellation, refund, leaving the line), or the last answer that knew its
order open. Two reservations collide if both certainly have a place at one time.
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from onsale.history.checks.books import Books
from onsale.history.checks.check import CLOCKS_MS, Check, Line
from onsale.history.checks.holds import BY_OPERATORS, KEEP, LEAVES

EVERYTHING = ("/admin/inventory/events/{event_id}/release-all", "/admin/orders/events/{event_id}/refund")
OPEN, SOLD = frozenset({"pending", "review"}), frozenset({"confirmed"})


class _Held:
    """The places of one reservation and until when it certainly has them."""

    __slots__ = ("at_ms", "ends", "event_id", "fan", "ga", "number", "order", "seats", "until_ms")

    def __init__(self, number: int, line: Line) -> None:
        self.number, self.event_id, self.fan = number, line.get("event_id"), line.get("fan")
        self.at_ms, self.until_ms = line["at_ms"], float(line.get("until_ms", 0))
        self.ends: dict[str, float] = {}  # seats and sections that may have been given back earlier
        self.seats = tuple(line["seats"])
        self.ga = {part["section_id"]: part["quantity"] for part in line["ga"]}
        self.order: str | None = None


class _Order:
    """Until when an order certainly has its places: for ever once it was confirmed, unless money went back."""

    __slots__ = ("ends_ms", "until_ms")

    def __init__(self) -> None:
        self.until_ms, self.ends_ms = 0.0, math.inf


class Claim(NamedTuple):
    """Places that a reservation certainly has between two times."""

    from_ms: float
    until_ms: float
    quantity: int
    number: int
    reservation_id: str


class Seats(Check):
    """What fans read is compared with itself, the databases with themselves."""

    TITLE = "no place is given twice"
    KINDS = frozenset({
        "held", "hold_extended", "kept", "released", "all_released", "left", "slot_given_back", "ordered", "order",
        "order_extended", "cancel_requested", "refund_requested", "resolved", "event_refund_requested", "unanswered",
        "payment_started",
    })  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self._held: dict[str, _Held] = {}
        self._orders: dict[str, _Order] = defaultdict(_Order)
        self._of_fan: dict[str, list[_Held]] = defaultdict(list)
        self._all_ended: dict[str, float] = {}  # per event: when an operator released or refunded everything

    def read(self, number: int, line: Line) -> None:
        what, of = line["what"], line.get("of", "")
        held = self._held.get(line.get("reservation_id", ""))
        if what == "held" and held is None:
            held = self._held[line["reservation_id"]] = _Held(number, line)
            self._of_fan[line.get("fan", "")].append(held)
        elif what in ("left", "slot_given_back") or of in LEAVES:
            for each in self._of_fan[line.get("fan", "")]:
                _end(each, line["sent_ms"])
        elif (
            what in ("all_released", "event_refund_requested")
            or "release-all" in of
            or "events/{event_id}/refund" in of
        ):
            event_id = line["event_id"]
            self._all_ended[event_id] = min(self._all_ended.get(event_id, math.inf), line["sent_ms"])
        elif held is not None and "reference" not in line:
            self._change(held, line)
        if "reference" in line:
            self._order(line, held)

    def _change(self, held: _Held, line: Line) -> None:
        what, of = line["what"], line.get("of", "")
        if what == "kept" or of == KEEP:
            kept = set(line.get("seats", ())) | {part["section_id"] for part in line.get("ga", ())}
            for place in (*held.seats, *held.ga):
                if place not in kept or place in held.ga:
                    held.ends[place] = min(held.ends.get(place, math.inf), line["sent_ms"])
        elif what == "released" or what == "unanswered":
            _end(held, line["sent_ms"])
        held.until_ms = max(held.until_ms, line.get("until_ms", 0))

    def _order(self, line: Line, held: _Held | None) -> None:
        order = self._orders[line["reference"]]
        if held is not None:
            held.order = line["reference"]
        status = line.get("status")
        if line["what"] == "unanswered" or line["what"] in ("cancel_requested", "refund_requested", "resolved"):
            if line["what"] != "unanswered" or "payments" not in line["of"]:
                order.ends_ms = min(order.ends_ms, line["sent_ms"])
        elif status in SOLD:
            order.until_ms = math.inf
        elif status in OPEN:
            order.until_ms = max(order.until_ms, line["sent_ms"])
        else:
            order.ends_ms = min(order.ends_ms, order.until_ms)

    # -- what was acknowledged -----------------------------------------------------------------------------------

    def _claims(self) -> Iterator[tuple[tuple[str, str], Claim]]:
        """Each seat, and each section of general admission, with the time for which a reservation has it."""
        for reservation_id, held in self._held.items():
            until_ms = held.until_ms - CLOCKS_MS
            if held.order is not None:  # it may end before the hold would have
                order = self._orders[held.order]
                until_ms = min(order.until_ms, order.ends_ms)
            until_ms = min(until_ms, self._all_ended.get(held.event_id or "", math.inf))
            for place, quantity in (*((seat, 1) for seat in held.seats), *held.ga.items()):
                ends_ms = min(until_ms, held.ends.get(place, math.inf), held.ends.get("", math.inf))
                claim = Claim(held.at_ms, ends_ms, quantity, number=held.number, reservation_id=reservation_id)
                yield (held.event_id or "", place), claim

    async def compare(self, books: Books) -> None:
        claims: dict[tuple[str, str], list[Claim]] = defaultdict(list)
        operators = await self._released_by_operators(books)
        for place, claim in self._claims():
            self.compared += 1
            until_ms = min(claim.until_ms, operators.get(claim.reservation_id, math.inf))
            claims[place].append(claim._replace(until_ms=until_ms))
        events = sorted({*(event_id for event_id, _ in claims), *books.events})
        sections = {}
        async for row in books.rows("inventory", "sections", events):
            sections[row["event_id"], row["section_id"]] = row["capacity"]
        for (event_id, name), own in claims.items():
            self._compare_place(f"{name} of {event_id}", sections.get((event_id, name), 1), own)
        async for row in books.rows("inventory", "oversold_sections", events):
            self.violated(f"{row['sold']} places of section {row['section_id']} are sold, it has {row['capacity']}")
        async for row in books.rows("inventory", "shared_seats", events):
            self.violated(f"seat {row['seat']} belongs to {' and '.join(sorted(row['reservations']))}")

    async def _released_by_operators(self, books: Books) -> dict[str, float]:
        """When operators released reservations: their requests need not be in the history."""
        events = sorted({held.event_id for held in self._held.values() if held.event_id})
        return {
            row["reservation_id"]: row["released_ms"] - CLOCKS_MS
            async for row in books.rows("inventory", "releases", events)
            if row["reason"] in BY_OPERATORS
        }

    def _compare_place(self, name: str, capacity: int, claims: list[Claim]) -> None:
        """At no time do reservations certainly have more of this place than there is."""
        steps = [(claim.from_ms, 1, claim) for claim in claims if claim.until_ms > claim.from_ms]
        steps += [(claim.until_ms, 0, claim) for _, _, claim in steps]
        taken, holders = 0, dict[str, int]()
        for _, begins, claim in sorted(steps, key=lambda step: step[:2]):
            taken += claim.quantity if begins else -claim.quantity
            if begins:
                holders[claim.reservation_id] = claim.number
            else:
                del holders[claim.reservation_id]
            if taken > capacity:
                self.violated(f"{name} was given {taken} times at once, there is {capacity}", *holders.values())
                return


def _end(held: _Held, at_ms: float) -> None:
    held.ends[""] = min(held.ends.get("", math.inf), at_ms)
