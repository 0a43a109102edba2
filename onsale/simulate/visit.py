"""A simulated fan's visit: joins, waits, claims, chooses, holds and pays; may give up, and may send a request twice."""

import asyncio
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Container, Mapping
from typing import TypeVar

from onsale.client import Fan, Problem
from onsale.client.fan import CALLED, ENDED, LOST, OVER, Paying
from onsale.client.fan_documents import (
    EventDetails,
    OrderView,
    Payment,
    ReservationView,
    ReserveBody,
    SectionAvailability,
)
from onsale.simulate.browser import Browser
from onsale.simulate.observations import CALM, Observations, Profile

SHARE_SEATED, SHARE_BOTH = 0.6, 0.1
PICKS_MAX = 8
ORDER_PATIENCE_S = 120.0
ROOM_CLOSED = {409, 410}  # sold out, or not open: the fan came too late or too early
EXPECTED: Mapping[str, Container[int]] = {"join": ROOM_CLOSED, "sections": ()}
"""The refusals of an operation that are not a failure: any for those that are not named here."""
Answered = TypeVar("Answered")


class GaveUp(Exception):
    """This fan ends without tickets; the message says why."""


class Visit:
    """One fan's. With `watches` the fan holds a live stream while waiting, otherwise polls."""

    def __init__(
        self,
        event: EventDetails,
        browser: Browser,
        observations: Observations,
        *,
        seed: int,
        watches: bool,
        profile: Profile = CALM,
    ) -> None:
        self._rng = random.Random(seed)  # noqa: S311 - a simulation, not a secret
        self._fan = Fan(browser, event["event_id"])
        self._client, self._observations, self._event, self._watches = browser, observations, event, watches
        self._profile = profile

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
        await self._twice(lambda: self._fan.join(key=key), lambda place: place["join_seq"], "two numbers for one fan")
        self._observations.joined_at_place(self._fan.join_seq)

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
                self._observations.record_call(join_seq, time.monotonic())
                return
            self._observations.check_not_overtaken(join_seq, asked_at)
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
        """The reservation; None if somebody else was faster."""
        try:
            return await self._fan.hold(selection)
        except Problem as problem:
            if problem.status != 409:
                raise
        return None

    async def _choose(self) -> ReserveBody | None:
        """Selects some seats of one section, some GA tickets, or both; None when nothing is left."""
        answer = await self._client.sections(self._event["event_id"])
        most = self._event["limits"]["tickets_per_order"]
        open_now = [section for section in answer["sections"] if section["available_seats"] > 0]
        seated = [section for section in open_now if section["kind"] == "seated"]
        ga = [section for section in open_now if section["kind"] == "ga"]
        selection: ReserveBody = {}
        wants_a_seat = seated and (not ga or self._happens(SHARE_SEATED))
        if wants_a_seat and (seats := await self._pick(self._rng.choice(seated), self._rng.randint(1, most))):
            selection["seats"] = seats
        taken = len(selection.get("seats", ()))
        if ga and taken < most and (not selection or self._happens(SHARE_BOTH)):
            section = self._rng.choice(ga)
            quantity = min(self._rng.randint(1, most - taken), section["available_seats"])
            selection["ga"] = [{"section_id": section["section_id"], "quantity": quantity}]
        return selection or None

    async def _pick(self, section: SectionAvailability, wanted: int) -> list[str]:
        size = 100
        page = self._rng.randint(1, -(-section["total_seats"] // size))
        answer = await self._client.seats(
            self._event["event_id"], section["section_id"], page=page, page_size=size, token=self._fan.admission
        )
        free = [seat["seat_id"] for seat in answer["seats"] if seat["status"] == "available"]
        start = self._rng.randrange(max(1, len(free) - wanted + 1))
        return free[start : start + wanted]

    async def _buy(self, reservation: ReservationView) -> None:
        if self._happens(self._profile.leaves_hold):
            await self._fan.release(reservation)
            self._observations.gave_up += 1
            raise GaveUp("gave the hold back")
        join_seq = self._fan.join_seq
        self._fan.customer = {
            "name": f"Fan {join_seq}", "email": f"fan-{join_seq}-{uuid.uuid4().hex[:8]}@example.org",
        }  # fmt: skip
        self._fan.payment = self._payment()
        order = await self._twice(
            lambda: self._fan.order(reservation), lambda order: order["reference"], "two orders for one purchase"
        )
        paying = Paying(
            follow=self._patiently(), again=self._payment_again, at_page=self._press_button,
            cancels_after_s=self._cancels_after_s(),
        )  # fmt: skip
        status = (await self._fan.see_through(order, paying))["status"]
        if status != "confirmed":
            raise GaveUp(f"order {status}")
        tickets = len(reservation["seats"]) + sum(part["quantity"] for part in reservation["ga"])
        self._observations.record_purchase(list(reservation["seats"]), tickets)

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
