"""Places and passes that were acknowledged exist, each under its holder, and each number has one fan."""

import math
from itertools import pairwise
from typing import NamedTuple

from onsale.history.checks.books import Books
from onsale.history.checks.check import CLOCKS_MS, Check, Faults, Line, Place, name_of, place_of

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
