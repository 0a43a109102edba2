"""A simulated fan's visit: joins, waits, claims, chooses, holds and pays; may give up, and may send a request twice."""

import asyncio
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from typing import TypeVar

from onsale.client import Fan, Problem
from onsale.client.fan import CALLED, ENDED, LOST, OVER, Paying
from onsale.client.fan_documents import (
    EventDetails,
    OrderAccepted,
    OrderView,
    Payment,
    ReservationView,
    ReserveBody,
    SectionAvailability,
    TypesBody,
)
from onsale.simulate.browser import Browser
from onsale.simulate.observations import CALM, Observations, Profile
from onsale.simulate.price_types import TypeChoices

SHARE_SEATED, SHARE_BOTH = 0.6, 0.1
SHARE_BEST, SHARE_RETYPED = 0.3, 0.15  # of those who may choose a price type
SHARE_ACCESSIBLE, CODE_TRIES = 0.1, 3
PICKS_MAX = 8
ORDER_PATIENCE_S = 120.0
LIMIT = "limit-exceeded"
ROOM_CLOSED = {409, 410}  # sold out, or not open: the fan came too late or too early
EXPECTED: Mapping[str, Container[int]] = {"join": ROOM_CLOSED, "sections": ()}
"""The refusals of an operation that are not a failure: any for those that are not named here."""
Answered = TypeVar("Answered")


class GaveUp(Exception):
    """This fan ends without tickets; the message says why."""


class Visit:
    """One fan's. With `watches` the fan holds a live stream while waiting, otherwise polls. An `access_code` opens a
    lane to the fan, a `code` price types and stock. Without an `email` it is one that nobody else has.
    """

    def __init__(
        self,
        event: EventDetails,
        browser: Browser,
        observations: Observations,
        *,
        seed: int,
        watches: bool,
        profile: Profile = CALM,
        access_code: str | None = None,
        code: str | None = None,
        email: str | None = None,
    ) -> None:
        self._rng = random.Random(seed)  # noqa: S311 - a simulation, not a secret
        self._fan = Fan(browser, event["event_id"])
        self._client, self._observations, self._event, self._watches = browser, observations, event, watches
        self._profile, self._access_code, self._code = profile, access_code, code
        self._email, self._code_tries = email, CODE_TRIES if code else 0
        self._wishes = TypeChoices(event, lane=0, code=code, rng=self._rng)
        self._sold_at: dict[str, list[str]] = {}  # the price types of the seats that the fan has looked at

    async def live(self, *, arrive_after_s: float) -> None:
        await asyncio.sleep(arrive_after_s)
        try:
            await self._join()
            await self._wait()
            await self._fan.claim()
            await self._buy(await self._hold())
        except GaveUp as why:
            self._observations.refused[str(why)] += 1
        except Problem as problem:
            self._observations.refused[self._end_of(problem)] += 1

    def _end_of(self, problem: Problem) -> str:
        """Why the fan goes home. A refusal that is not expected, and no answer, is a failure."""
        if problem.is_refusal and problem.status in EXPECTED.get(problem.operation, range(400, 500)):
            return f"{problem.operation} refused ({problem.status})"
        self._observations.failed[f"{problem.operation} {problem.status}"] += 1
        return f"{problem.operation} failed"

    @property
    def _names_wanted(self) -> bool:
        return self._event.get("names") == "ticket"

    @property
    def _lane(self) -> int:
        return self._fan.lane or 0

    def _happens(self, share: float) -> bool:
        return self._rng.random() < share

    async def _twice(
        self, call: Callable[[], Awaitable[Answered]], identity: Callable[[Answered], object], wrong: str
    ) -> Answered:
        """The answer of one request, which some fans send twice at a time: it must be answered alike."""
        times = 1 + self._happens(self._profile.repeats_hold)
        answers = await asyncio.gather(*(call() for _ in range(times)))
        if len({identity(answer) for answer in answers}) > 1:
            self._observations.failed[wrong] += 1
        return answers[0]

    async def _join(self) -> None:
        key = str(uuid.uuid4())  # not from the seed: the same fans may come again
        await self._twice(
            lambda: self._fan.join(code=self._access_code, key=key),
            lambda place: place["join_seq"],
            "two numbers for one fan",
        )
        self._wishes = TypeChoices(self._event, lane=self._lane, code=self._code, rng=self._rng)
        self._observations.joined_at_place(self._fan.join_seq, lane=self._lane)

    async def _wait(self) -> None:
        join_seq, leaves_at = self._fan.join_seq, None
        if self._happens(self._profile.leaves_line):
            leaves_at = time.monotonic() + self._rng.uniform(1, 30)
        while True:
            asked_at = time.monotonic()
            place = await self._fan.status()
            if place["status"] in LOST:
                raise GaveUp(place["status"])
            if place["status"] in CALLED:
                self._observations.record_call(join_seq, time.monotonic(), lane=self._lane)
                return
            self._observations.check_not_overtaken(join_seq, asked_at, lane=self._lane)
            if leaves_at and asked_at > leaves_at:
                await self._fan.leave()
                self._observations.gave_up += 1
                raise GaveUp("left the line")
            if place["state"] in OVER:
                self._observations.empty_handed += 1
                raise GaveUp("sold out while waiting")
            await self._fan.pause(place, watches=self._watches)

    async def _hold(self) -> ReservationView:
        for _ in range(PICKS_MAX):
            selection = await self._choose()
            if selection is None:
                break
            if held := await self._held(selection):
                self._observations.held += 1
                return held
        self._observations.empty_handed += 1
        raise GaveUp("nothing left to choose")

    async def _held(self, selection: ReserveBody) -> ReservationView | None:
        """The reservation; None if somebody else was faster, or if it is not sold like that."""
        if self._code is not None:
            selection["code"] = self._code
        try:
            held = await self._fan.hold(selection)
        except Problem as problem:
            if problem.status != 409:
                raise
            self._wishes.heed(problem)
            return None
        return await self._retyped(held) if self._wishes.any and self._happens(SHARE_RETYPED) else held

    async def _choose(self) -> ReserveBody | None:
        """Selects some seats of one section, some GA tickets, or both; None when nothing is left. Where there are price
        types, some leave the choice of the places to the seller; so does who knows a code, as nobody is shown what is
        kept for it.
        """
        answer = await self._client.sections(self._event["event_id"])
        self._wishes.see(answer.get("types", ()))
        most = self._event["limits"]["tickets_per_order"]
        open_now = [section for section in answer["sections"] if section["available_seats"] > 0]
        if self._code_tries:
            self._code_tries -= 1
            return self._best_of(answer["sections"], self._rng.randint(1, most))
        if open_now and self._wishes.any and self._happens(SHARE_BEST):
            return self._best_of(open_now, self._rng.randint(1, most))
        seated = [section for section in open_now if section["kind"] == "seated"]
        ga = [section for section in open_now if section["kind"] == "ga"]
        selection: ReserveBody = {}
        wants_a_seat = seated and (not ga or self._happens(SHARE_SEATED))
        if wants_a_seat and (seats := await self._pick(self._rng.choice(seated), self._rng.randint(1, most))):
            selection["seats"] = seats
            if types := self._types_of(seats):
                selection["types"] = types
        taken = len(selection.get("seats", ()))
        if ga and taken < most and (not selection or self._happens(SHARE_BOTH)):
            section = self._rng.choice(ga)
            quantity = min(self._rng.randint(1, most - taken), section["available_seats"])
            selection["ga"] = self._wishes.of_ga(section["section_id"], quantity)
        return selection or None

    def _best_of(self, sections: Sequence[SectionAvailability], quantity: int) -> ReserveBody:
        """The best places of one of these sections, or anywhere; some come with a wheelchair."""
        if self._happens(SHARE_ACCESSIBLE) and (accessible := self._wishes.accessible()):
            quantity = sum(accessible.values())
            return {"best_available": {
                "quantity": quantity, "types": accessible, "wheelchair": 1, "companions": quantity - 1, "split": True,
            }}  # fmt: skip
        section_id = self._rng.choice([None, *(section["section_id"] for section in sections)])
        types = self._wishes.unseen(section_id, quantity)
        return {"best_available": {"quantity": quantity, "section_id": section_id, "types": types, "split": True}}

    async def _pick(self, section: SectionAvailability, wanted: int) -> list[str]:
        size = 100
        page = self._rng.randint(1, -(-section["total_seats"] // size))
        answer = await self._client.seats(
            self._event["event_id"],
            section["section_id"],
            page=page,
            page_size=size,
            code=self._code,
            token=self._fan.admission,
        )
        free = [seat for seat in answer["seats"] if seat["status"] == "available"]
        start = self._rng.randrange(max(1, len(free) - wanted + 1))
        picked = free[start : start + wanted]
        self._sold_at |= {seat["seat_id"]: list(seat.get("prices", ())) for seat in picked}
        return [seat["seat_id"] for seat in picked]

    def _types_of(self, seats: Sequence[str]) -> dict[str, str]:
        """The price types that the fan wants for these seats, but the usual one."""
        chosen = self._wishes.choose([self._sold_at[seat_id] for seat_id in seats])
        return {seat_id: type_id for seat_id, type_id in zip(seats, chosen, strict=True) if type_id is not None}

    async def _retyped(self, held: ReservationView) -> ReservationView:
        """The same places at other prices: somebody else comes along. What is refused stays as it was."""
        body: TypesBody = {"types": {}, "ga": [], "code": self._code}
        for ticket in held["tickets"]:
            if (seat_id := ticket["seat_id"]) is not None:
                self._sold_at.setdefault(seat_id, self._wishes.at_unseen(ticket["section_id"]))
        body["types"] = self._types_of(held["seats"])
        for part in held["ga"]:
            body["ga"] += self._wishes.of_ga(part["section_id"], part["quantity"])
        try:
            return await self._client.change_types(
                self._event["event_id"], held["reservation_id"], body, token=self._fan.admission
            )
        except Problem as problem:
            if problem.status != 409:
                raise
            self._wishes.heed(problem)
        return held

    async def _buy(self, reservation: ReservationView) -> None:
        if self._happens(self._profile.leaves_hold):
            await self._fan.release(reservation)
            self._observations.gave_up += 1
            raise GaveUp("gave the hold back")
        join_seq = self._fan.join_seq
        email = self._email or f"fan-{join_seq}-{uuid.uuid4().hex[:8]}@example.org"
        self._fan.customer = {"name": f"Fan {join_seq}", "email": email}
        self._fan.payment = self._payment()
        order = await self._order(reservation)
        paying = Paying(
            follow=self._patiently(), again=self._payment_again, at_page=self._press_button,
            cancels_after_s=self._cancels_after_s(),
        )  # fmt: skip
        seen = await self._fan.see_through(order, paying)
        if seen["status"] != "confirmed":
            raise GaveUp(f"order {seen['status']}")
        tickets = len(reservation["seats"]) + sum(part["quantity"] for part in reservation["ga"])
        self._observations.record_purchase(list(reservation["seats"]), tickets)
        self._observations.record_prices(
            [(each["type_id"], each["quantity"], each["unit_price_minor"]) for each in reservation["tickets"]],
            total_minor=seen["total_minor"],
        )
        self._observations.tickets_of[email] += tickets

    async def _order(self, reservation: ReservationView) -> OrderAccepted:
        """Who has bought as many tickets as they may gives these back, and goes."""
        tickets = sum(ticket["quantity"] for ticket in reservation["tickets"])
        names = [f"Fan {self._fan.join_seq}, {n}" for n in range(1, tickets + 1)] if self._names_wanted else []
        try:
            return await self._twice(
                lambda: self._fan.order(reservation, names=names),
                lambda order: order["reference"],
                "two orders for one purchase",
            )
        except Problem as problem:
            if problem.slug == LIMIT:
                await self._fan.release(reservation)
                await self._client.release_pass(event=self._event["event_id"], token=self._fan.admission)
            raise

    def _payment(self) -> Payment:
        return {"provider": "sandbox", "method": self._weighted_choice(self._profile.methods)}

    def _payment_again(self, number: int) -> Payment | None:
        """The last payment that a fan tries succeeds."""
        if number > self._profile.payments_max:
            return None
        return {"provider": "sandbox", "method": "ok"} if number == self._profile.payments_max else self._payment()

    async def _press_button(self, url: str) -> None:
        await self._client.press_button(url, self._weighted_choice(self._profile.page))

    def _weighted_choice(self, weights: Mapping[str, int]) -> str:
        return self._rng.choices(list(weights), list(weights.values()))[0]

    def _patiently(self) -> Callable[[OrderView], None]:
        """Looks at the order as long as a fan has patience."""
        over_s = time.monotonic() + ORDER_PATIENCE_S

        def check(order: OrderView) -> None:
            if time.monotonic() > over_s and order["status"] not in ENDED:
                self._observations.failed["order still open"] += 1
                raise GaveUp("order still open")

        return check

    def _cancels_after_s(self) -> float:
        if self._happens(self._profile.cancels):
            return self._rng.uniform(0.0, 2.0)
        return self._profile.patience_s or ORDER_PATIENCE_S
