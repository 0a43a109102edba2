"""No place is acknowledged to two fans at overlapping times, and no section sells more than it has, nor any price type
of which there is a number in all: its tickets are added up over all sections.

A reservation certainly holds its places from its answer on until the first moment at which it may have ended: its
deadline, a request that may end it (release, cancellation, refund, leaving the line), or the last answer that knew its
order open. Two reservations collide if both certainly have a place at one time.

Holds that were acknowledged exist with their places, and end only by their time or because somebody asked for it.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from onsale.history.checks.check import CLOCKS_MS, Books, Check, Line

QUOTA = "~"  # begins the id under which the tickets of a price type are counted
LIVE = frozenset({"pending_payment", "paying", "confirmed"})
ENDED = frozenset({"expired", "cancelled", "returned"})
BY_OPERATORS = frozenset({"operator", "release-all"})
RELEASE = "DELETE /events/{event_id}/reservations/{reservation_id}"
KEEP = "POST /events/{event_id}/reservations/{reservation_id}/keep"
TYPES = "POST /events/{event_id}/reservations/{reservation_id}/types"
LEAVES = frozenset({"DELETE /events/{event_id}/queue", "POST /gate/release"})


class _Hold:
    """What was acknowledged of one reservation."""

    __slots__ = (
        "ended", "fan", "ga", "may_be_kept", "may_be_released", "may_be_typed", "number", "seats", "until_ms", "worth",
    )  # fmt: skip

    def __init__(self, number: int) -> None:
        self.number, self.fan, self.until_ms = number, None, 0
        self.seats: frozenset[str] = frozenset()
        self.ga: dict[str, int] = {}
        self.worth: tuple[int, str] | None = None  # of exactly these places and types
        self.ended: int | None = None  # the line that said so
        self.may_be_released = self.may_be_kept = self.may_be_typed = False


class Holds(Check):
    """Every reservation that the history names is compared with its row."""

    TITLE = "holds are kept until their end"
    KINDS = frozenset({
        "held", "reservation", "hold_extended", "kept", "types_changed", "released", "all_released", "left",
        "slot_given_back", "unanswered",
    })  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self._holds: dict[str, _Hold] = {}
        self._leavers: set[str] = set()

    def read(self, number: int, line: Line) -> None:
        what = line["what"]
        if what in ("left", "slot_given_back") or line.get("of") in LEAVES:
            self._leavers.add(line.get("fan", ""))
        reservation_id = line.get("reservation_id")
        if reservation_id is None:
            return
        if what == "unanswered":
            if hold := self._holds.get(reservation_id):
                hold.may_be_released = hold.may_be_released or line["of"] == RELEASE
                hold.may_be_kept = hold.may_be_kept or line["of"] == KEEP
                hold.may_be_typed = hold.may_be_typed or line["of"] == TYPES
            return
        hold = self._holds.setdefault(reservation_id, _Hold(number))
        self.compared += 1
        if what == "released":
            hold.may_be_released = True
            hold.ended = hold.ended or number
            return
        self._update(hold, number, line)

    def _update(self, hold: _Hold, number: int, line: Line) -> None:
        if line["status"] in ENDED:
            hold.ended = hold.ended or number
            return
        if hold.ended and line["what"] != "reservation" and line["status"] == "pending_payment":
            self.violated(f"reservation {line['reservation_id']} had ended and is held again", hold.ended, number)
        seats, ga = frozenset(line["seats"]), {part["section_id"]: part["quantity"] for part in line["ga"]}
        if not hold.seats and not hold.ga:
            hold.number = number
        hold.seats, hold.ga, hold.fan = seats, ga, line.get("fan", hold.fan)
        hold.worth = (line["total_amount_minor_units"], line["currency"])
        hold.until_ms = max(hold.until_ms, line.get("until_ms", 0))

    async def compare(self, books: Books) -> None:
        reasons: dict[str, set[str]] = {}
        missing, events = set(self._holds), set[str]()
        rows = []
        async for row in books.rows_of("inventory", "reservations", self._holds):
            missing.discard(row["reservation_id"])
            events.add(row["event_id"])
            rows.append(row)
        async for row in books.rows("inventory", "releases", sorted(events)):
            if row["reservation_id"] in self._holds:
                reasons.setdefault(row["reservation_id"], set()).add(row["reason"])
        for reservation_id in sorted(missing):
            self.violated(f"reservation {reservation_id} is not stored", self._holds[reservation_id].number)
        for row in rows:
            hold = self._holds[row["reservation_id"]]
            self._compare_places(hold, row, reasons.get(row["reservation_id"], set()))
            self._compare_end(hold, row, reasons.get(row["reservation_id"], set()))

    def _compare_places(self, hold: _Hold, row: Line, reasons: set[str]) -> None:
        name = f"reservation {row['reservation_id']}"
        if hold.fan is not None and hold.fan != row["holder"]:
            self.violated(f"{name} belongs to another fan in the database", hold.number)
        if not hold.seats and not hold.ga:
            return  # nothing is known of its places
        seats, ga = frozenset(row["seats"]), row["ga"]
        fewer = hold.may_be_kept or row["status"] == "returned" or "returned" in reasons
        if seats - hold.seats or any(quantity > hold.ga.get(section, 0) for section, quantity in ga.items()):
            self.violated(f"{name} has places that were not acknowledged", hold.number)
        elif not fewer and (seats, ga) != (hold.seats, hold.ga):
            self.violated(f"{name} has lost places", hold.number)
        elif not (fewer or hold.may_be_typed) and hold.worth != (row["total_minor"], row["currency"]):
            self.violated(f"{name} costs {row['total_minor']} {row['currency']}, not {hold.worth}", hold.number)

    def _compare_end(self, hold: _Hold, row: Line, reasons: set[str]) -> None:
        name, status = f"reservation {row['reservation_id']}", row["status"]
        if hold.ended is not None and status in LIVE:
            self.violated(f"{name} had ended and is {status}", hold.ended)
        if status == "expired" and row["order_reference"] is None:
            if row["ended_ms"] is None or row["ended_ms"] < hold.until_ms - CLOCKS_MS:
                self.violated(f"{name} expired before {hold.until_ms}", hold.number)
        elif status == "cancelled" and row["order_reference"] is None:
            left = row["holder"] in self._leavers and "leaving" in reasons
            if not (hold.may_be_released or left or reasons & BY_OPERATORS):
                self.violated(
                    f"{name} was released and nobody asked for it ({', '.join(sorted(reasons))})", hold.number
                )


EVERYTHING = ("/admin/inventory/events/{event_id}/release-all", "/admin/orders/events/{event_id}/refund")
OPEN, SOLD = frozenset({"pending", "review"}), frozenset({"confirmed"})


class _Held:
    """The places of one reservation and until when it certainly has them."""

    __slots__ = ("at_ms", "ends", "event_id", "fan", "ga", "number", "order", "seats", "types", "until_ms")

    def __init__(self, number: int, line: Line) -> None:
        self.number, self.event_id, self.fan = number, line.get("event_id"), line.get("fan")
        self.at_ms, self.until_ms = line["at_ms"], float(line.get("until_ms", 0))
        self.ends: dict[str, float] = {}  # seats and sections that may have been given back earlier
        self.seats = tuple(line["seats"])
        self.ga = {part["section_id"]: part["quantity"] for part in line["ga"]}
        self.types = Counter[str]()  # by the id under which the number in all is counted
        for ticket in line.get("tickets") or ():
            self.types[f"{QUOTA}{ticket['type_id']}"] += ticket["quantity"]
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
        "held", "hold_extended", "kept", "types_changed", "released", "all_released", "left", "slot_given_back",
        "ordered", "order", "order_extended", "cancel_requested", "refund_requested", "resolved",
        "event_refund_requested", "unanswered", "payment_started",
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
            for place in (*held.seats, *held.ga, *held.types):
                if place not in kept or place in held.ga:
                    held.ends[place] = min(held.ends.get(place, math.inf), line["sent_ms"])
        elif what == "types_changed" or of == TYPES:
            for type_id in held.types:
                held.ends[type_id] = min(held.ends.get(type_id, math.inf), line["sent_ms"])
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
        """Each seat, section of general admission and price type, with the time for which a reservation has it."""
        for reservation_id, held in self._held.items():
            until_ms = held.until_ms - CLOCKS_MS
            if held.order is not None:  # it may end before the hold would have
                order = self._orders[held.order]
                until_ms = min(order.until_ms, order.ends_ms)
            until_ms = min(until_ms, self._all_ended.get(held.event_id or "", math.inf))
            for place, quantity in (*((seat, 1) for seat in held.seats), *held.ga.items(), *held.types.items()):
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
            if name[0] == QUOTA and (event_id, name) not in sections:
                continue  # the usual type, of which there is no number in all
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
