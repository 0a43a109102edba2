"""Visits of a trial: each fan has one of several behaviours, makes choices from a seed, and insists on answers."""

import asyncio
import random
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress

import httpx

from onsale.client import Fan, Problem
from onsale.client.fan import CALLED, ENDED, Pace, Paying, is_over
from onsale.client.fan_documents import (
    KeepBody,
    OrderAccepted,
    OrderView,
    Payment,
    ReservationView,
    ReserveBody,
)
from proof.insistence import InsistentClient, Meetings
from proof.swarm.plan import PlannedFan
from shared.concurrency.tasks import stop

METHODS = (
    "ok", "slow", "timeout_after_success", "error_then_ok", "duplicate_webhooks", "reordered_webhooks", "late_success",
    "success_after_cancel", "double_success", "refund_fails_once", "capture_fails_once", "redirect",
)  # fmt: skip
PICKS_MAX, PAYMENTS_MAX, TIMEOUT_S = 6, 3, 8.0
PACE = Pace(poll_max_s=0.8, order_first_s=0.3, order_max_s=0.5)
ROWS, SEATS_PER_ROW = 4, 8
PROVIDER_PAGE = {"content-type": "application/x-www-form-urlencoded"}


class OrderStaysOpen(Exception):
    """Its fan waits no longer; the trial has found it."""


class Visit:
    """One fan's. `orders` collects references for operators, who may refund them."""

    def __init__(
        self, url: str, http: httpx.AsyncClient, event_id: str, plan: PlannedFan, meetings: Meetings, orders: list[str],
        page: httpx.AsyncClient, *, tickets_max: int,
    ) -> None:  # fmt: skip
        self.plan, self.meetings, self.orders, self.page = plan, meetings, orders, page
        self.rng = random.Random(plan.seed)
        client = InsistentClient(
            url, meetings, http=http, rng=self.rng, repeats=plan.repeats, timeout_s=TIMEOUT_S
        )  # fmt: skip
        self.fan = Fan(client, event_id, customer={"name": "A fan", "email": f"fan-{plan.seed}@example.org"}, pace=PACE)
        self.stage, self.tickets_max = "outside", tickets_max
        self.bought = False

    async def live(self) -> None:
        """The whole visit; what the fan was refused ends it, or makes them choose otherwise."""
        await asyncio.sleep(self.plan.at_s)
        with suppress(Problem, OrderStaysOpen):
            await BEHAVIOURS[self.plan.behaviour](self)
        self.stage = "home"

    def _new_key(self) -> str:
        return str(uuid.UUID(int=self.rng.getrandbits(128)))

    async def get_in_line(self) -> None:
        self.stage = "join"
        await self.fan.join(key=self._new_key())

    async def is_called(self, *, within_s: float = float("inf")) -> bool:
        """Polls until the call; false once the place or the sale is over, or after this time."""
        until_s = time.monotonic() + within_s
        while time.monotonic() < until_s:
            place = await self.fan.status()
            if is_over(place):
                return place["status"] in CALLED
            self.stage = f"waits ({place['state']}, position {place['position_in_queue']})"
            if time.monotonic() > self.meetings.deadline_s:
                self.meetings.found.append(f"a fan still waits in the line: {place}")
                return False
            await self.fan.pause(place)
        return False

    async def come_in(self) -> bool:
        if self.fan.queue_token is None:
            await self.get_in_line()
        if not await self.is_called():
            return False
        self.stage = "claim"
        await self.fan.claim()
        return True

    async def choose(self) -> ReservationView | None:
        """Holds something; None when nothing is left to choose."""
        self.stage = "hold"
        for _ in range(PICKS_MAX):
            try:
                return await self.fan.hold(self._selection(), key=self._new_key())
            except Problem as refused:
                if refused.status != 409:
                    raise
                await asyncio.sleep(self.rng.uniform(0.2, 1.0))
        return None

    def _selection(self) -> ReserveBody:
        row, seat = self.rng.randint(1, ROWS), self.rng.randint(1, SEATS_PER_ROW)
        count = self.rng.randint(1, min(3, self.tickets_max))
        kind = self.rng.choice(
            ("seats", "ga", "best") if 2 * count > self.tickets_max else ("seats", "ga", "both", "best")
        )
        seats = [f"A-{row}-{number}" for number in range(seat, min(seat + count, SEATS_PER_ROW + 1))]
        if kind == "best":
            return {"best_available": {"quantity": count, "section_id": self.rng.choice(("A", "GA1"))}}
        selection: ReserveBody = {}
        if kind != "ga":
            selection["seats"] = seats
        if kind != "seats":
            selection["ga"] = [{"section_id": "GA1", "quantity": count}]
        return selection

    async def pay(self, held: ReservationView, method: str) -> OrderAccepted:
        self.stage = "order"
        order = await self.fan.order(held, payment=_payment(method))
        self.orders.append(order["reference"])
        return order

    async def follow(self, order: OrderAccepted, *, cancel_after_s: float = float("inf")) -> str:
        """The final status: pays again after a decline, answers on the provider's page, cancels in time."""

        def look(now: OrderView) -> None:
            self.stage = f"order {now['status']}"
            if now["status"] not in ENDED and time.monotonic() > self.meetings.deadline_s:
                self.meetings.found.append(f"order {now['reference']} is still {now['status']}: {now['attempt']}")
                raise OrderStaysOpen

        paying = Paying(
            follow=look, again=lambda number: _payment("ok") if number <= PAYMENTS_MAX else None,
            at_page=self._press_button, cancels_after_s=cancel_after_s,
        )  # fmt: skip
        return (await self.fan.see_through(order, paying))["status"]

    async def _press_button(self, url: str) -> None:
        choice = self.rng.choice(("pay", "pay", "pay", "decline", "cancel"))
        with suppress(httpx.HTTPError):
            await self.page.post(url, content=f"choice={choice}", headers=PROVIDER_PAGE)

    async def buy(self, method: str = "ok", *, cancel_after_s: float = float("inf")) -> None:
        if not await self.come_in():
            return
        await asyncio.sleep(self.rng.uniform(0, 1))
        if held := await self.choose():
            await self.see_through(await self.pay(held, method), cancel_after_s=cancel_after_s)

    async def see_through(self, order: OrderAccepted, *, cancel_after_s: float = float("inf")) -> None:
        if await self.follow(order, cancel_after_s=cancel_after_s) == "confirmed":
            self.bought = True
            await self.fan.tickets(order)

    async def pays_in_every_way(self) -> None:
        await self.buy(self.rng.choice(METHODS))

    async def declined(self) -> None:
        await self.buy("decline")

    async def cancels(self) -> None:
        method = self.rng.choice(("slow", "late_success", "success_after_cancel", "redirect", "ok"))
        await self.buy(method, cancel_after_s=self.rng.uniform(0, 1.5))

    async def leaves(self) -> None:
        await self.get_in_line()
        await self.is_called(within_s=self.rng.uniform(0, 4))
        with suppress(Problem):
            await self.fan.leave()

    async def comes_back(self) -> None:
        """Goes away without a word for longer than a window of liveness, or than the claim window."""
        await self.get_in_line()
        await asyncio.sleep(self.rng.uniform(2, 9))
        if await self.is_called():
            await self.fan.claim()
            if held := await self.choose():
                await self.follow(await self.pay(held, "ok"))

    async def claims_late(self) -> None:
        await self.get_in_line()
        if await self.is_called():
            await asyncio.sleep(self.rng.uniform(2, 7))
            await self.fan.claim()
            await self.choose()

    async def keeps_part(self) -> None:
        if not await self.come_in() or not (held := await self.choose()):
            return
        kept = held
        with suppress(Problem):
            kept = await self.fan.keep(held, _first_of(held))
        await self.follow(await self.pay(kept, "ok"))

    async def releases(self) -> None:
        if not await self.come_in():
            return
        for _ in range(2):
            if held := await self.choose():
                with suppress(Problem):
                    await self.fan.release(held)

    async def watches(self) -> None:
        """Reads the event's stream while waiting and choosing, and then the order's."""
        await self.get_in_line()
        async with _reading(self.fan.client.event_updates(self.fan.event_id, token=self.fan.queue_token)):
            held = await self.choose() if await self.come_in() else None
        if held:
            order = await self.pay(held, "ok")
            async with _reading(self.fan.client.order_updates(order["reference"], token=order["order_token"])):
                await self.see_through(order)


@asynccontextmanager
async def _reading(updates: AsyncGenerator[object]) -> AsyncIterator[None]:
    """Reads a stream while the context lasts."""

    async def read() -> None:
        with suppress(Problem):
            async with aclosing(updates):
                async for _ in updates:
                    pass

    reading = asyncio.create_task(read())
    try:
        yield
    finally:
        await stop([reading])


def _first_of(held: ReservationView) -> KeepBody:
    """One of its places."""
    if held["seats"]:
        return {"seats": held["seats"][:1]}
    return {"ga": [{"section_id": held["ga"][0]["section_id"], "quantity": 1}]}


def _payment(method: str) -> Payment:
    return {"provider": "sandbox", "method": method}


BEHAVIOURS: Mapping[str, Callable[[Visit], Awaitable[None]]] = {
    "buys": Visit.buy, "pays in every way": Visit.pays_in_every_way, "declined, pays again": Visit.declined,
    "cancels": Visit.cancels, "leaves": Visit.leaves, "comes back": Visit.comes_back,
    "claims late": Visit.claims_late, "keeps part": Visit.keeps_part, "releases": Visit.releases,
    "watches": Visit.watches,
}  # fmt: skip
