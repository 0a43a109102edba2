"""Places and passes that were acknowledged exist, each under its holder, and each number has one fan.

A fan's position never grows, and an estimated wait grows only with a reason that the answer names.

Only answers one after the other are compared: the later request was sent when the earlier answer was there. Two
gateways may have different frames for a moment; the answers tell by their heads. A fault that the history names
explains both for a minute: a gateway that has just started knows no earlier head.
"""

import math
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple

from onsale.history.checks.check import CLOCKS_MS, Books, Check, Faults, Line, Place, name_of, place_of

ENDED = frozenset({"completed", "expired", "left"})


class _Claim(NamedTuple):
    number: int
    jti: str
    expires_at_ms: int


class Places(Check):
    """A place is for good: its number, its holder, its pass, its end."""

    TITLE = "places and passes are kept"
    KINDS = frozenset({"joined", "position", "called", "left", "claimed", "session_extended", "slot_given_back"})

    def __init__(self, faults: Faults) -> None:
        super().__init__()
        self._faults = faults
        self._first: dict[Place, tuple[int, str | None, str | None]] = {}  # line, holder, user
        self._ended: dict[Place, tuple[int, int]] = {}  # line, at_ms
        self._claims: dict[Place, _Claim] = {}
        self._called: dict[Place, tuple[int, int]] = {}  # line, at_ms

    def read(self, number: int, line: Line) -> None:
        place = place_of(line)
        if place is None:
            return
        self.compared += 1
        self._know(number, place, line)
        status = line.get("status")
        if line["what"] == "left" or status in ENDED:
            self._ended.setdefault(place, (number, line["at_ms"]))
        elif status is not None and place in self._ended and line["sent_ms"] > self._ended[place][1]:
            self.violated(f"{name_of(place)} had ended and is {status} again", self._ended[place][0], number)
        if line["what"] == "called":
            self._called.setdefault(place, (number, line["at_ms"]))
        if "jti" in line:
            self._claimed(number, place, line)

    def _know(self, number: int, place: Place, line: Line) -> None:
        fan, user = line.get("fan"), line.get("user")
        first, known, known_user = self._first.get(place, (number, fan, user))
        if fan is not None and known is not None and fan != known:
            self.violated(f"two fans were given {name_of(place)}", first, number)
        self._first[place] = first, known or fan, known_user or user

    def _claimed(self, number: int, place: Place, line: Line) -> None:
        known = self._claims.get(place)
        if known is not None and known.jti != line["jti"]:
            self.violated(f"{name_of(place)} was given two passes", known.number, number)
        expires_at_ms = max(line["expires_at_ms"], known.expires_at_ms if known else 0)
        self._claims[place] = _Claim(number, line["jti"], expires_at_ms)

    async def compare(self, books: Books) -> None:
        events = sorted({place[0] for place in self._first})
        missing = set(self._first)
        ended = set[Place]()
        holders: dict[tuple[str, int, str], list[Place]] = {}
        times: dict[Place, tuple[int, float]] = {}
        async for row in books.rows("queue", "places", events):
            place = row["event_id"], row["epoch"], row["lane"], row["join_seq"]
            if place in self._first:
                missing.discard(place)
                self._compare_holder(place, row)
                if row["ended_ms"] is not None:
                    ended.add(place)
                times[place] = row["joined_ms"], math.inf if row["ended_ms"] is None else row["ended_ms"]
                holders.setdefault((row["event_id"], row["epoch"], row["holder"]), []).append(place)
        for place in sorted(missing):
            self.violated(f"{name_of(place)} was acknowledged and is not stored", self._first[place][0])
        for place in sorted(self._ended.keys() - ended - missing):
            self.violated(f"{name_of(place)} had ended and is live in the database", self._ended[place][0])
        self._compare_live_places(holders, times)
        await self._compare_calls(books, events, ended | missing)

    def _compare_holder(self, place: Place, row: Line) -> None:
        number, fan, user = self._first[place]
        if fan is not None and fan != row["holder"]:
            self.violated(f"{name_of(place)} belongs to another fan in the database", number)
        elif fan is None and user is not None and user != row["user_id"]:
            self.violated(f"{name_of(place)} belongs to another user in the database", number)

    def _compare_live_places(
        self, holders: dict[tuple[str, int, str], list[Place]], times: dict[Place, tuple[int, float]]
    ) -> None:
        """A fan with two places had lost the first when the second was given."""
        for (event_id, _, holder), places in holders.items():
            for earlier, later in pairwise(sorted(places, key=lambda place: times[place])):
                if times[earlier][1] > times[later][0]:
                    numbers = self._first[earlier][0], self._first[later][0]
                    self.violated(f"{holder} has two live places at {event_id}: {earlier[3]} and {later[3]}", *numbers)

    async def _compare_calls(self, books: Books, events: list[str], over: set[Place]) -> None:
        claims, called = dict(self._claims), self._called.keys() - over
        async for row in books.rows("queue", "calls", events):
            place = row["event_id"], row["epoch"], row["lane"], row["join_seq"]
            called.discard(place)
            claim = claims.get(place)
            if claim is not None and row["jti"] == claim.jti:
                del claims[place]
                if row["expires_at_ms"] < claim.expires_at_ms:
                    self.violated(f"the session of {name_of(place)} is shorter than its pass says", claim.number)
        for place, claim in sorted(claims.items()):
            self.violated(f"the pass of {name_of(place)} is not stored", claim.number)
        for place in sorted(called):
            number, at_ms = self._called[place]
            if not self._faults.explain(at_ms - CLOCKS_MS, at_ms + CLOCKS_MS):
                self.violated(f"the call of {name_of(place)} is not stored", number)


ON_THE_WAY_MS = 2_000  # gateways may have different frames for so long
FRAME_STALE_MS = 15_000  # a gateway may answer from a frame of this age, and so name a reason that is this old


class _Answer(NamedTuple):
    number: int
    at_ms: int
    position: int | None
    wait_s: int | None
    head: int | None


class Positions(Check):
    """Compares each answer with the one before, for each place."""

    TITLE = "positions never grow, estimates only with a reason"
    KINDS = frozenset({"joined", "position", "called"})

    def __init__(self, faults: Faults) -> None:
        super().__init__()
        self._faults = faults
        self._last: dict[Place, _Answer] = {}

    def read(self, number: int, line: Line) -> None:
        place = place_of(line)
        if place is None:
            return
        last = self._last.get(place)
        now = _Answer(
            number, line["at_ms"], line.get("position_in_queue"), line.get("estimated_wait_time"), _head(line)
        )
        if last is not None:
            if line["sent_ms"] < last.at_ms:
                return
            self.compared += 1
            if not (_is_older(last, now) or self._faults.explain(last.at_ms, now.at_ms)):
                self._compare(place, last, now, line)
        self._last[place] = now

    def _compare(self, place: Place, last: _Answer, now: _Answer, line: Line) -> None:
        numbers, name = (last.number, now.number), name_of(place)
        if grew(last.position, now.position):
            self.violated(f"{name} went back from position {last.position} to {now.position}", *numbers)
        if grew(last.wait_s, now.wait_s) and not _explained(last, line):
            self.violated(f"the wait of {name} grew from {last.wait_s} to {now.wait_s} s without a reason", *numbers)

    async def compare(self, books: Books) -> None:
        """Everything was decided while reading."""


def _head(line: Line) -> int | None:
    """The head that this answer was computed from. The answer to a joining fan does not name it, but tells it by the
    position.
    """
    position, head = line.get("position_in_queue"), line.get("head_seq")
    if line["what"] == "joined" and position is not None:
        head = (line.get("rank") or line["join_seq"]) - position
    return int(head) if head else None


def _is_older(last: _Answer, now: _Answer) -> bool:
    """Whether another gateway answered, whose newer frame was still on its way."""
    return bool(last.head and now.head and now.head < last.head and now.at_ms - last.at_ms <= ON_THE_WAY_MS)


def grew(before: int | None, after: int | None) -> bool:
    return before is not None and after is not None and after > before


def _explained(last: _Answer, line: Line) -> bool:
    """Whether the answer names a reason that came after the last one."""
    change = line.get("estimate_changed")
    if not change:
        return False
    return datetime.fromisoformat(change["at"]).timestamp() * 1000 >= last.at_ms - FRAME_STALE_MS
