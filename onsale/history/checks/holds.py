"""Holds that were acknowledged exist with their places, and end only by their time or because somebody asked for it."""

from onsale.history.checks.books import Books
from onsale.history.checks.check import CLOCKS_MS, Check, Line

LIVE = frozenset({"pending_payment", "paying", "confirmed"})
ENDED = frozenset({"expired", "cancelled", "returned"})
BY_OPERATORS = frozenset({"operator", "release-all"})
RELEASE = "DELETE /events/{event_id}/reservations/{reservation_id}"
KEEP = "POST /events/{event_id}/reservations/{reservation_id}/keep"
LEAVES = frozenset({"DELETE /events/{event_id}/queue", "POST /gate/release"})


class _Hold:
    """What was acknowledged of one reservation."""

    __slots__ = ("ended", "fan", "ga", "may_be_kept", "may_be_released", "number", "seats", "until_ms", "worth")

    def __init__(self, number: int) -> None:
        self.number, self.fan, self.until_ms = number, None, 0
        self.seats: frozenset[str] = frozenset()
        self.ga: dict[str, int] = {}
        self.worth: tuple[int, str] | None = None  # of exactly these places
        self.ended: int | None = None  # the line that said so
        self.may_be_released = self.may_be_kept = False


class Holds(Check):
    """Every reservation that the history names is compared with its row."""

    TITLE = "holds are kept until their end"
    KINDS = frozenset({
        "held", "reservation", "hold_extended", "kept", "released", "all_released", "left", "slot_given_back",
        "unanswered",
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
        hold.worth = line["total_amount_minor_units"], line["currency"]
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
        elif not fewer and hold.worth != (row["total_minor"], row["currency"]):
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
