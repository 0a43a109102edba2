"""A simulated fan: joins, waits, claims, chooses, holds and pays; may give up, and may send a request twice."""

import asyncio
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Container, Mapping
from contextlib import aclosing, suppress
from typing import Any, TypeVar

from onsale.client import Problem
from onsale.client.fan import CALLED, LOST, OVER
from onsale.client.fan_documents import (
    EventDetails,
    NewOrder,
    NewPayment,
    OrderAccepted,
    Payment,
    ReservationView,
    ReserveBody,
    SectionAvailability,
)
from onsale.simulate.browser import Browser
from onsale.simulate.observations import Observations
from onsale.simulate.profiles import CALM, Profile

SHARE_SEATED, SHARE_BOTH = 0.6, 0.1
PICKS_MAX = 8
ORDER_PATIENCE_S = 120.0
ROOM_CLOSED = {409, 410}  # sold out, or not open: the fan came too late or too early
REFUSALS = frozenset(range(400, 500)) - {429}
FINAL = {"confirmed", "cancelled", "expired", "review", "refunded", "partially_refunded"}
Answered = TypeVar("Answered")


class GaveUp(Exception):
    """This fan ends without tickets; the message says why."""


class Refused(GaveUp):
    """The suite said no, as it may."""


class Fan:
    """One fan. With `watches` it holds a live stream while it waits, otherwise it polls."""

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
        self._client, self._observations, self._event, self._watches = browser, observations, event, watches
        self._event_id, self._profile = event["event_id"], profile
        self._token: str | None = None
        self._pass = self._checkout_key = ""
        self._join_seq = 0

    async def live(self, *, arrive_after_s: float) -> None:
        await asyncio.sleep(arrive_after_s)
        try:
            await self._join()
            await self._wait()
            await self._claim()
            reservation = await self._hold()
            await self._buy(reservation)
        except GaveUp as why:
            self._observations.refused[str(why)] += 1

    def _happens(self, share: float) -> bool:
        return self._rng.random() < share

    async def _ask(self, name: str, call: Awaitable[Answered], *, expected: Container[int] = REFUSALS) -> Answered:
        """The answer; a fan goes home when refused. A refusal that is not expected, and no answer, is a failure."""
        try:
            return await call
        except Problem as problem:
            if problem.status in expected:
                raise Refused(f"{name} refused ({problem.status})") from problem
            self._observations.failed[f"{name} {problem.status}"] += 1
            raise GaveUp(f"{name} failed") from problem

    async def _try(self, name: str, call: Awaitable[object]) -> None:
        """Asks for what may come too late: a refusal changes nothing for this fan."""
        with suppress(Refused):
            await self._ask(name, call)

    async def _twice(self, name: str, call: Callable[[], Awaitable[Answered]], **expected: Any) -> list[Answered]:
        """The answers of one request, which some fans send twice at a time."""
        times = 1 + self._happens(self._profile.repeats_hold)
        return await asyncio.gather(*(self._ask(name, call(), **expected) for _ in range(times)))

    async def _join(self) -> None:
        key = str(uuid.uuid4())  # not from the seed: the same fans may come again
        places = await self._twice("join", lambda: self._client.join(self._event_id, key=key), expected=ROOM_CLOSED)
        if len({place["join_seq"] for place in places}) > 1:
            self._observations.failed["two numbers for one fan"] += 1
        self._token, self._join_seq = places[0]["queue_token"], places[0]["join_seq"]
        self._observations.joined_at_place(self._join_seq)

    async def _wait(self) -> None:
        leaves_at = time.monotonic() + self._rng.uniform(1, 30) if self._happens(self._profile.leaves_line) else None
        while True:
            asked_at = time.monotonic()
            place = await self._ask("status", self._client.status(self._event_id, token=self._token))
            if place["status"] in LOST:
                raise GaveUp(place["status"])
            if place["status"] in CALLED:
                self._observations.record_call(self._join_seq, time.monotonic())
                return
            self._observations.check_not_overtaken(self._join_seq, asked_at)
            if leaves_at and asked_at > leaves_at:
                await self._ask("leave", self._client.leave(self._event_id, token=self._token))
                self._observations.gave_up += 1
                raise GaveUp("left the line")
            if place["state"] in OVER:
                self._observations.empty_handed += 1
                raise GaveUp("sold out while waiting")
            await self._pause(place["poll_after_ms"] / 1000)

    async def _pause(self, seconds: float) -> None:
        """Waits until the next poll; a fan with a stream polls as soon as the line reaches the place."""
        try:
            async with asyncio.timeout(seconds):
                await (self._watch() if self._watches else asyncio.sleep(seconds + 1))
        except (TimeoutError, Problem):
            return

    async def _watch(self) -> None:
        async with aclosing(self._client.event_updates(self._event_id, token=self._token)) as updates:
            async for kind, frame in updates:
                if kind == "line" and (frame["head_seq"] >= self._join_seq or frame["state"] in OVER):
                    return

    async def _claim(self) -> None:
        answer = await self._ask("pass", self._client.claim(self._event_id, token=self._token))
        self._pass, self._checkout_key = answer["pass"], answer["checkout_key"]

    async def _hold(self) -> ReservationView:
        for _ in range(PICKS_MAX):
            selection = await self._choose()
            if selection is None:
                break
            if held := await self._ask("hold", self._held(selection)):
                self._observations.held += 1
                return held
        self._observations.empty_handed += 1
        raise GaveUp("nothing left to choose")

    async def _held(self, selection: ReserveBody) -> ReservationView | None:
        """The reservation; None if somebody else was faster."""
        try:
            return await self._client.hold(self._event_id, selection, token=self._pass)
        except Problem as problem:
            if problem.status != 409:
                raise
        return None

    async def _choose(self) -> ReserveBody | None:
        """Selects some seats of one section, some GA tickets, or both; None when nothing is left."""
        answer = await self._ask("sections", self._client.sections(self._event_id), expected=())
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
        seats = self._client.seats(self._event_id, section["section_id"], page=page, page_size=size, token=self._pass)
        answer = await self._ask("seats", seats)
        free = [seat["seat_id"] for seat in answer["seats"] if seat["status"] == "available"]
        start = self._rng.randrange(max(1, len(free) - wanted + 1))
        return free[start : start + wanted]

    async def _buy(self, reservation: ReservationView) -> None:
        held = reservation["reservation_id"]
        if self._happens(self._profile.leaves_hold):
            await self._ask("give back", self._client.release(self._event_id, held, token=self._pass))
            self._observations.gave_up += 1
            raise GaveUp("gave the hold back")
        quote = await self._ask("quote", self._client.quote({"reservation_id": held}, token=self._pass))
        body: NewOrder = {
            "reservation_id": held,
            "expected_total_minor": quote["total_minor"],
            "currency": reservation["currency"],
            "customer": {
                "name": f"Fan {self._join_seq}",
                "email": f"fan-{self._join_seq}-{uuid.uuid4().hex[:8]}@example.org",
            },
            "payment": self._payment(),
        }
        key = f"{self._checkout_key}.{held}"
        orders = await self._twice("order", lambda: self._client.create_order(body, key=key, token=self._pass))
        if len({order["reference"] for order in orders}) > 1:
            self._observations.failed["two orders for one purchase"] += 1
        await self._follow_order(reservation, orders[0])

    def _payment(self) -> Payment:
        return {"provider": "sandbox", "method": self._weighted_choice(self._profile.methods)}

    def _weighted_choice(self, weights: Mapping[str, int]) -> str:
        return self._rng.choices(list(weights), list(weights.values()))[0]

    async def _follow_order(self, reservation: ReservationView, order: OrderAccepted) -> None:
        """Follows the order to its end: pays again after a decline, answers on the provider's page, may cancel."""
        reference, token = order["reference"], order["order_token"]
        begun_s, pause_s, payments, pages = time.monotonic(), 0.3, 1, set[str]()
        cancels_s = self._cancels_after_s()
        status = "pending"
        while status not in FINAL:
            open_for_s = time.monotonic() - begun_s
            if open_for_s > ORDER_PATIENCE_S:
                self._observations.failed["order still open"] += 1
                raise GaveUp("order still open")
            await asyncio.sleep(pause_s * self._rng.uniform(0.7, 1.3))
            pause_s = min(3.0, pause_s * 1.4)
            now = await self._ask("order status", self._client.order(reference, token=token))
            status, attempt = now["status"], now["attempt"]
            if status == "pending" and open_for_s > cancels_s:
                cancels_s = ORDER_PATIENCE_S
                await self._try("cancel", self._client.cancel_order(reference, token=token))
            elif attempt and (page := attempt["checkout_url"]) and page not in pages:
                pages.add(page)
                await self._client.press_button(page, self._weighted_choice(self._profile.page))
            elif attempt and attempt["status"] == "failed" and payments < self._profile.payments_max:
                payments += 1
                last = payments == self._profile.payments_max
                body: NewPayment = {"payment": {"provider": "sandbox", "method": "ok"} if last else self._payment()}
                await self._try("pay again", self._client.pay_again(reference, body, token=token))
        if status != "confirmed":
            raise GaveUp(f"order {status}")
        tickets = len(reservation["seats"]) + sum(part["quantity"] for part in reservation["ga"])
        self._observations.record_purchase(list(reservation["seats"]), tickets)

    def _cancels_after_s(self) -> float:
        if self._happens(self._profile.cancels):
            return self._rng.uniform(0.0, 2.0)
        return self._profile.patience_s or ORDER_PATIENCE_S
