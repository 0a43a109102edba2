"""Orders that were acknowledged exist, keep what was said of them, and what has ended stays ended.

A confirmed order stays confirmed until a person asks for its refund, here or at the provider, or disputes its payment.
One that was cancelled by its fan or an operator is never confirmed; one that expired, or whose payment failed, only if
its provider took the money in time after all.

Fans are called in the order of their numbers, and no faster than the operator allowed.

Order: of two places of a lane, the smaller number is called first if its fan was there when the larger was called. A
fan is there from the answer to the join on, as long as no two polls are further apart than the liveness window. First
calls are compared: a fan who missed one is called again as a returner.

Number: at no time were more calls made than a bucket of the operator's burst, filled at the operator's rate, allows.
"""

import math
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, NamedTuple

from onsale.history.checks.check import CLOCKS_MS, Books, Check, Line, Place, name_of, place_of

SOLD = frozenset({"confirmed", "partially_refunded"})
GIVEN_BACK = frozenset({"partially_refunded", "refunded", "review"})
OVER = frozenset({"cancelled", "expired"})
BY_PEOPLE = frozenset({"fan", "operator"})
REFUNDS = frozenset({"refund_requested", "resolved"})


class _Order:
    """What was acknowledged of one order."""

    __slots__ = (
        "by_people", "cancelled", "confirmed", "currency", "ended_ms", "fan", "number", "over", "refund",
        "refund_answered", "reservation_id", "tickets", "total_minor",
    )  # fmt: skip

    def __init__(self, number: int) -> None:
        self.number = number
        self.fan = self.reservation_id = self.currency = None
        self.total_minor: int | None = None
        self.confirmed: int | None = None  # the line that said so, as of the others
        self.over: int | None = None
        self.ended_ms = math.inf  # when the first answer with an end came
        self.by_people = False
        self.refund: int | None = None
        self.refund_answered: int | None = None
        self.cancelled: int | None = None
        self.tickets: tuple[int, frozenset[str]] | None = None


class Orders(Check):
    """Every order that the history names is compared with its row."""

    TITLE = "orders are kept"
    KINDS = frozenset({
        "ordered", "order", "order_frame", "payment_started", "order_extended", "cancel_requested", "refund_requested",
        "resolved", "event_refund_requested", "tickets", "unanswered",
    })  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self._orders: dict[str, _Order] = {}
        self._refunded_events: set[str] = set()

    def read(self, number: int, line: Line) -> None:
        what = line["what"]
        if what == "event_refund_requested" or line.get("of", "").endswith("/admin/orders/events/{event_id}/refund"):
            self._refunded_events.add(line["event_id"])
        reference = line.get("reference")
        if reference is None:
            return
        if what == "unanswered":
            if (order := self._orders.get(reference)) and line["of"].startswith("POST /admin/orders"):
                order.refund = order.refund or number
            return
        order = self._orders.setdefault(reference, _Order(number))
        self.compared += 1
        if what in REFUNDS or (what == "cancel_requested" and "fan" not in line):
            order.refund = order.refund or number
        if what == "refund_requested":
            order.refund_answered = number
        if what == "tickets":
            self._tickets(reference, order, number, line)
            return
        self._facts(reference, order, number, line)
        self._status(reference, order, number, line)

    def _facts(self, reference: str, order: _Order, number: int, line: Line) -> None:
        """What never changes: price, currency, reservation."""
        for name in ("total_minor", "currency", "reservation_id"):
            known, now = getattr(order, name), line.get(name)
            if known is None:
                setattr(order, name, now)
            elif now is not None and now != known:
                self.violated(f"{name} of order {reference} changed from {known} to {now}", order.number, number)
        if line["what"] == "ordered":
            order.fan = line.get("fan")

    def _status(self, reference: str, order: _Order, number: int, line: Line) -> None:
        status = line.get("status")
        is_later = line["sent_ms"] >= order.ended_ms and line["what"] != "order_frame"  # a frame may be an old one
        if status in SOLD | OVER:
            order.ended_ms = min(order.ended_ms, line["at_ms"])
        if status in SOLD:
            order.confirmed = order.confirmed or number
        elif status in OVER:
            if order.confirmed and is_later:
                self.violated(f"order {reference} was confirmed and is {status}", order.confirmed, number)
            order.over, order.by_people = number, order.by_people or line.get("end_reason") in BY_PEOPLE
        elif status == "pending" and is_later:
            self.violated(f"order {reference} had ended and is pending", order.confirmed or order.over or 0, number)

    def _tickets(self, reference: str, order: _Order, number: int, line: Line) -> None:
        now = frozenset(ticket["ticket_id"] for ticket in line["tickets"])
        if order.tickets is not None and order.tickets[1] and order.tickets[1] != now:
            self.violated(f"order {reference} has other tickets than before", order.tickets[0], number)
        order.tickets = number, now

    # -- the database --------------------------------------------------------------------------------------------

    async def compare(self, books: Books) -> None:
        missing, sold = set(self._orders), dict[str, str]()
        async for row in books.rows_of("orders", "orders", self._orders):
            missing.discard(row["reference"])
            order = self._orders[row["reference"]]
            lines = [number for number in (order.number, order.confirmed, order.over) if number]
            for sentence in (*self._wrong_facts(order, row), *self._wrong_end(order, row)):
                self.violated(f"order {row['reference']} {sentence}", *lines)
            if row["status"] in SOLD:
                sold[row["reservation_id"]] = row["reference"]
        for reference in sorted(missing):
            self.violated(f"order {reference} is not stored", self._orders[reference].number)
        async for row in books.rows_of("inventory", "reservations", sold):
            reference = sold.pop(row["reservation_id"])
            order = self._orders[reference]
            if row["status"] != "confirmed" and not self._may_be_refunded(order, row["event_id"]):
                self.violated(f"order {reference} is sold, its places are {row['status']}", order.number)
        for reference in sorted(sold.values()):
            self.violated(f"order {reference} is sold, its places are unknown", self._orders[reference].number)

    def _wrong_facts(self, order: _Order, row: Any) -> Iterator[str]:
        if row["status"] == "tombstone":
            yield "is not stored"
            return
        for name in ("total_minor", "currency", "reservation_id"):
            known = getattr(order, name)
            if known is not None and known != row[name]:
                yield f"was acknowledged with {name} {known}, and has {row[name]}"
        if order.fan is not None and row["owner_id"] != f"{row['event_id']}:{order.fan}":
            yield "belongs to another fan"
        if order.tickets is not None and not order.tickets[1] <= set(row["tickets"]):
            yield "has lost tickets"

    def _wrong_end(self, order: _Order, row: Any) -> Iterator[str]:
        status, sold = row["status"], row["status"] in SOLD | {"refunded"}
        if order.confirmed:
            refundable = self._may_be_refunded(order, row["event_id"]) or row["refunded_by_people"] or row["disputed"]
            if status in GIVEN_BACK and not refundable:
                yield f"was confirmed and is {status}, and nobody asked for a refund"
            elif status not in SOLD | GIVEN_BACK and not (status == "cancelled" and row["authorised_only"]):
                yield f"was confirmed and is {status}"
        elif order.over and sold and status != "refunded":
            if order.by_people and row["review_decision"] is None and not order.refund:
                yield f"was cancelled and is {status}"
            elif not row["paid_in_time"]:
                yield f"had ended and is {status}, and was not paid in time"
        if order.refund_answered and not row["refunds"]:
            yield "has no refund, and one was acknowledged"

    def _may_be_refunded(self, order: _Order, event_id: str) -> bool:
        return order.refund is not None or event_id in self._refunded_events


CALLING = frozenset({"open", "draining"})
ENDED = frozenset({"completed", "expired", "left"})
LATE_TICK_S = 0.4  # the bucket may hold the tokens of a tick that came so late
SLACK_MS = 1_000  # how much later than the database Redis may get a change
Lane = tuple[str, int, int]  # event_id, epoch, lane


class _Presence:
    """From when to when a fan was certainly there, by the answers to their polls."""

    __slots__ = ("at_ms", "from_ms", "is_over", "number", "rank", "until_ms")

    def __init__(self, number: int, line: Line) -> None:
        self.number, self.from_ms, self.until_ms = number, line["at_ms"], line["at_ms"]
        self.at_ms, self.is_over, self.rank = line["sent_ms"], False, line.get("rank")

    def extend(self, line: Line, window_ms: int) -> None:
        self.rank = line.get("rank", self.rank)
        ended = line["what"] == "left" or line["status"] in ENDED
        self.is_over = self.is_over or ended or line["at_ms"] - self.at_ms > window_ms
        if not self.is_over:
            self.at_ms, self.until_ms = max(self.at_ms, line["sent_ms"]), max(self.until_ms, line["sent_ms"])


class Setting(NamedTuple):
    """What an operator had set from this time on (ms since 1970)."""

    at_ms: int
    action: str
    after: Mapping[str, Any]

    @property
    def rate_per_s(self) -> float:
        return float(self.after["rate_per_s"]) if self.after["state"] in CALLING else 0.0

    @property
    def cap(self) -> float:
        return float(max(self.after["burst"], self.after["rate_per_s"] * LATE_TICK_S))


class Calls(Check):
    """`windows` are the shortest liveness windows of the events' rooms, in ms."""

    TITLE = "calls are in order and within the rate"
    KINDS = frozenset({"joined", "position", "called", "left"})

    def __init__(self, windows: Mapping[str, int]) -> None:
        super().__init__()
        self._windows = windows
        self._present: dict[Place, _Presence] = {}

    def read(self, number: int, line: Line) -> None:
        place = place_of(line)
        if place is None or (place not in self._present and line["what"] != "joined"):
            return
        if place not in self._present:
            self._present[place] = _Presence(number, line)
        elif line["what"] != "joined":
            self._present[place].extend(line, self._windows.get(place[0], 0))

    async def compare(self, books: Books) -> None:
        events = sorted({place[0] for place in self._present})
        settings: dict[tuple[str, int], list[Setting]] = {}
        async for row in books.rows("queue", "rooms", events):
            after = row["after"]
            settings.setdefault((row["event_id"], after["epoch"]), []).append(
                Setting(row["at_ms"], row["action"], after)
            )
        lanes: dict[Lane, list[Any]] = {}
        open_calls = Counter[tuple[str, int]]()
        async for row in books.rows("queue", "calls", events):
            lanes.setdefault((row["event_id"], row["epoch"], row["lane"]), []).append(row)
            open_calls[row["event_id"], row["epoch"]] += row["state"] in ("called", "claimed")
        for room, entries in settings.items():
            if min(entry.after.get("rollout_percent", 100) for entry in entries) < 100:
                continue  # fans outside the rolled-out share are called without waiting
            windows = _windows(entries)
            called = {
                lane: [(row["join_seq"], row["call"], call_ms(row["deadline_ms"], windows)) for row in rows]
                for lane, rows in lanes.items() if lane[:2] == room
            }  # fmt: skip
            self._compare_open(room, entries, open_calls[room])
            self._compare_rate(room, entries, sorted(at for calls in called.values() for *_, at in calls if at))
            for lane, calls in called.items():
                self._compare_order(lane, {join_seq: at for join_seq, call, at in calls if call == 1})

    # -- how many ---------------------------------------------------------------------------------------------------

    def _compare_open(self, room: tuple[str, int], entries: list[Setting], count: int) -> None:
        """A lowered limit ends no session, so the highest one counts."""
        most = max(entry.after["max_active"] for entry in entries)
        self.compared += 1
        if count > most:
            self.violated(f"{room[0]}: {count} fans are called or shop, {most} may")

    def _compare_rate(self, room: tuple[str, int], entries: list[Setting], times: list[int]) -> None:
        """A call takes a token from a bucket that was full at first, is filled as early and cut as late as the clocks
        leave open. A second's tokens may be missing: Redis may have given these twice when it failed over.
        """
        bucket = _Bucket(entries)
        self.compared += len(times)
        for at_ms in times:
            missing = bucket.take(at_ms)
            if missing > 1 + bucket.rate_per_s:
                self.violated(f"{room[0]}: the call at {at_ms} was {missing:.0f} calls too early for the rate")
                return

    # -- in what order ----------------------------------------------------------------------------------------------

    def _compare_order(self, lane: Lane, first: Mapping[int, int | None]) -> None:
        """`first`: when each number was called first, None if that is not known."""
        present = {place[3]: known for place, known in self._present.items() if place[:3] == lane}
        ranks = {n: known.rank for n, known in present.items() if known.rank is not None}
        ranks = ranks or {n: n for n in first.keys() | present.keys()}  # without a lottery the number is the rank
        later: list[tuple[int, int]] = []  # when larger numbers were called, as -ms: the latest first
        for n in sorted(ranks, key=lambda n: -ranks[n]):
            called_ms = first.get(n)
            if n in present and (called_ms is not None or n not in first):
                self.compared += 1
                self._compare_place((*lane, n), called_ms, later)
            if called_ms is not None:
                insort(later, (-called_ms, n))

    def _compare_place(self, place: Place, called_ms: int | None, later: list[tuple[int, int]]) -> None:
        """Whether a larger number was called while this fan was there, and before this fan."""
        presence = self._present[place]
        since_ms = presence.from_ms + CLOCKS_MS
        at = bisect_left(later, (-since_ms, 0)) - 1  # the earliest call after the fan had come
        if at < 0:
            return
        overtaken_ms, join_seq = -later[at][0], later[at][1]
        last_ms = min(presence.until_ms, math.inf if called_ms is None else called_ms - 1)
        if overtaken_ms <= last_ms:
            other = self._present.get((*place[:3], join_seq))
            numbers = (presence.number, *((other.number,) if other else ()))
            self.violated(f"{name_of(place)} waited while {join_seq} behind it was called", *numbers)


class _Bucket:
    """The most tokens that there may have been at a time, by the settings."""

    def __init__(self, entries: list[Setting]) -> None:
        self._segments = list(_segments(entries))
        self._admitted = sorted(
            (entry.at_ms - SLACK_MS, float(entry.after["admit"])) for entry in entries if entry.action == "admit"
        )
        _, self.rate_per_s, self._cap = self._segments.pop(0)
        self._tokens, self._extra, self._at_ms = self._cap, 0.0, 0.0

    def take(self, at_ms: int) -> float:
        """Takes a token at this time, which is not before an earlier one; how many are missing."""
        while self._admitted and self._admitted[0][0] <= at_ms:
            self._extra += self._admitted.pop(0)[1]
        while self._segments and self._segments[0][0] <= at_ms:
            since_ms, rate_per_s, cap = self._segments.pop(0)
            self._fill(since_ms)
            self.rate_per_s, self._cap = rate_per_s, cap
        self._fill(at_ms)
        if self._tokens < 1 <= self._extra:
            self._extra -= 1
        else:
            self._tokens -= 1
        return max(0.0, -self._tokens)

    def _fill(self, at_ms: float) -> None:
        passed_s = max(0.0, at_ms - self._at_ms) / 1000
        self._tokens = min(self._cap, self._tokens + self.rate_per_s * passed_s)
        self._at_ms = max(self._at_ms, at_ms)


def _segments(entries: list[Setting]) -> Iterator[tuple[float, float, float]]:
    """From when on which rate and capacity may have been in force: near a change, the highest of all around it."""
    times = [entry.at_ms for entry in entries]
    for at_ms in (-math.inf, *sorted({time + slack for time in times[1:] for slack in (-SLACK_MS, SLACK_MS)})):
        first = max(0, bisect_right(times, at_ms - SLACK_MS) - 1)
        last = max(first, bisect_right(times, at_ms + SLACK_MS) - 1)
        near = entries[first : last + 1]
        yield at_ms, max(entry.rate_per_s for entry in near), max(entry.cap for entry in near)


def _windows(entries: list[Setting]) -> list[tuple[int, int]]:
    """How long a call could be claimed, in ms, and from when on."""
    changes = groupby(entries, lambda entry: int(entry.after["claim_window_s"] * 1000))
    return [(window_ms, next(same).at_ms) for window_ms, same in changes]


def call_ms(deadline_ms: int | None, windows: list[tuple[int, int]]) -> int | None:
    """When a call was made, by its deadline; None if that is not known: a claim may be stored before its call and has
    no deadline then, and near a change of the window it is not known which one the call got.
    """
    if deadline_ms is None:
        return None
    ends = [*(float(at_ms) for _, at_ms in windows[1:]), math.inf]
    for (window_ms, _), end_ms in zip(windows, ends, strict=True):
        at_ms = deadline_ms - window_ms
        if abs(at_ms - end_ms) <= SLACK_MS:
            return None
        if at_ms < end_ms:
            return int(at_ms)
    return None
