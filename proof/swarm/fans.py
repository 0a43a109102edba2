"""Fans of a trial: each has one of several behaviours, makes its choices from its own seed, and insists on answers."""

import asyncio
import random
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, TypeVar

import httpx

from onsale.client import Client, Problem
from onsale.client.fan import CALLED, LOST, OVER, Fan
from onsale.client.fan_documents import (
    CustomerDetails,
    KeepBody,
    NewPayment,
    OrderAccepted,
    Payment,
    ReservationView,
    ReserveBody,
)
from proof.swarm.insistence import Meetings, Refused
from proof.swarm.plan import PlannedFan
from shared.concurrency.tasks import stop

T = TypeVar("T")
METHODS = (
    "ok", "slow", "timeout_after_success", "error_then_ok", "duplicate_webhooks", "reordered_webhooks", "late_success",
    "success_after_cancel", "double_success", "refund_fails_once", "capture_fails_once", "redirect",
)  # fmt: skip
POLL_MAX_S, PICKS_MAX, PAYMENTS_MAX = 0.8, 6, 3
ROWS, SEATS_PER_ROW = 4, 8
FINAL = {"confirmed", "cancelled", "expired", "review", "refunded", "partially_refunded"}
PROVIDER_PAGE = {"content-type": "application/x-www-form-urlencoded"}


class SwarmFan(Fan):
    """One fan. `orders` collects references for operators, who may refund them."""

    def __init__(
        self, client: Client, event_id: str, plan: PlannedFan, meetings: Meetings, orders: list[str],
        page: httpx.AsyncClient, *, tickets_max: int,
    ) -> None:  # fmt: skip
        super().__init__(client, event_id)
        self.plan, self.meetings, self.orders, self.page = plan, meetings, orders, page
        self.rng = random.Random(plan.seed)
        self.key, self.joins = f"swarm-{uuid.UUID(int=self.rng.getrandbits(128))}", 0
        self.email = f"fan-{plan.seed}@example.org"
        self.stage, self.tickets_max = "outside", tickets_max
        self.bought = False

    async def live(self) -> None:
        """The whole visit; what the fan was refused ends it, or makes them choose otherwise."""
        await asyncio.sleep(self.plan.at_s)
        with suppress(Refused):
            await BEHAVIOURS[self.plan.behaviour](self)
        self.stage = "home"

    async def insist(self, name: str, call: Callable[[], Awaitable[T]], identity: Any = None) -> T:
        self.stage = name
        times = 2 if self.plan.repeats else 1
        return await self.meetings.insist(name, call, self.rng, times=times, identity=identity)

    async def get_in_line(self) -> None:
        self.joins += 1
        key = f"{self.key}-{self.joins}"
        await self.insist("join", lambda: self.join(key=key), lambda place: (place["join_seq"], place["lane"]))

    async def is_called(self, *, within_s: float = float("inf")) -> bool:
        """Polls until the call; false once the place or the sale is over, or after this time."""
        until_s = time.monotonic() + within_s
        while time.monotonic() < until_s:
            place = await self.insist(
                "status", lambda: self.client.status(self.event_id, token=self.queue_token), lambda p: p["join_seq"]
            )
            if place["status"] in CALLED:
                return True
            if place["status"] in LOST or place["state"] in OVER:
                return False
            self.stage = f"waits ({place['state']}, position {place['position_in_queue']})"
            if time.monotonic() > self.meetings.deadline_s:
                self.meetings.found.append(f"a fan still waits in the line: {place}")
                return False
            await asyncio.sleep(min(place["poll_after_ms"] / 1000, POLL_MAX_S))
        return False

    async def come_in(self) -> bool:
        if self.queue_token is None:
            await self.get_in_line()
        if not await self.is_called():
            return False
        await self.insist("claim", self.claim, lambda answer: answer["pass"])
        return True

    async def choose(self) -> ReservationView | None:
        """Holds something; None when nothing is left to choose."""
        for _ in range(PICKS_MAX):
            try:
                return await self._hold(self._selection(), key=str(uuid.UUID(int=self.rng.getrandbits(128))))
            except Refused as refused:
                if refused.status != 409:
                    raise
                await asyncio.sleep(self.rng.uniform(0.2, 1.0))
        return None

    async def _hold(self, selection: ReserveBody, *, key: str) -> ReservationView:
        return await self.insist("hold", lambda: self.hold(selection, key=key), lambda held: held["reservation_id"])

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
        customer: CustomerDetails = {"name": "A fan", "email": self.email}
        payment = _payment(method)
        order = await self.insist("order", lambda: self.order(held, customer, payment), lambda o: o["reference"])
        self.orders.append(order["reference"])
        return order

    async def follow(self, order: OrderAccepted, *, cancel_after_s: float = float("inf")) -> str:
        """The final status: pays again after a decline, answers on the provider's page, cancels in time."""
        begun_s, payments, pages = time.monotonic(), 1, set[str]()
        reference, token = order["reference"], order["order_token"]
        while True:
            now = await self.insist("order status", lambda: self.client.order(reference, token=token))
            attempt, status = now["attempt"], now["status"]
            self.stage = f"order {status}"
            if status in FINAL:
                return status
            if time.monotonic() > self.meetings.deadline_s:
                self.meetings.found.append(f"order {reference} is still {status}: {attempt}")
                return status
            if time.monotonic() - begun_s > cancel_after_s:
                cancel_after_s = float("inf")
                await self._try(
                    "cancel", lambda: self.client.cancel_order(order["reference"], token=order["order_token"])
                )
            elif attempt and (url := attempt["checkout_url"]) and url not in pages:
                pages.add(url)
                await self._press_button(url)
            elif attempt and attempt["status"] == "failed" and payments < PAYMENTS_MAX:
                payments += 1
                await self._pay_again(order, payments)
            await asyncio.sleep(self.rng.uniform(0.2, 0.6))

    async def _pay_again(self, order: OrderAccepted, number: int) -> None:
        body: NewPayment = {"payment": _payment("ok")}
        key, token = f"{self.key}-payment-{number}", order["order_token"]
        await self._try("pay again", lambda: self.client.pay_again(order["reference"], body, key=key, token=token))

    async def _try(self, name: str, call: Callable[[], Awaitable[object]]) -> None:
        """What may come too late: a refusal changes nothing for this fan."""
        with suppress(Refused):
            await self.insist(name, call)

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
            await self.insist("tickets", lambda: self.tickets(order))

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
        await self._try("leave", lambda: self.client.leave(self.event_id, token=self.queue_token))

    async def comes_back(self) -> None:
        """Goes away without a word for longer than a window of liveness, or than the claim window."""
        await self.get_in_line()
        await asyncio.sleep(self.rng.uniform(2, 9))
        if await self.is_called():
            await self.insist("claim", self.claim, lambda answer: answer["pass"])
            if held := await self.choose():
                await self.follow(await self.pay(held, "ok"))

    async def claims_late(self) -> None:
        await self.get_in_line()
        if await self.is_called():
            await asyncio.sleep(self.rng.uniform(2, 7))
            await self.insist("claim", self.claim, lambda answer: answer["pass"])
            await self.choose()

    async def keeps_part(self) -> None:
        if not await self.come_in() or not (held := await self.choose()):
            return
        part, reservation_id, kept = _first_of(held), held["reservation_id"], held
        with suppress(Refused):
            kept = await self.insist(
                "keep", lambda: self.client.keep(self.event_id, reservation_id, part, token=self.admission)
            )
        await self.follow(await self.pay(kept, "ok"))

    async def releases(self) -> None:
        if not await self.come_in():
            return
        for _ in range(2):
            if held := await self.choose():
                await self._release(held["reservation_id"])

    async def _release(self, reservation_id: str) -> None:
        await self._try("release", lambda: self.client.release(self.event_id, reservation_id, token=self.admission))

    async def watches(self) -> None:
        """Reads the event's stream while waiting and choosing, and then the order's."""
        await self.get_in_line()
        async with _reading(self.client.event_updates(self.event_id, token=self.queue_token)):
            held = await self.choose() if await self.come_in() else None
        if held:
            order = await self.pay(held, "ok")
            async with _reading(self.client.order_updates(order["reference"], token=order["order_token"])):
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


BEHAVIOURS: Mapping[str, Callable[[SwarmFan], Awaitable[None]]] = {
    "buys": SwarmFan.buy, "pays in every way": SwarmFan.pays_in_every_way, "declined, pays again": SwarmFan.declined,
    "cancels": SwarmFan.cancels, "leaves": SwarmFan.leaves, "comes back": SwarmFan.comes_back,
    "claims late": SwarmFan.claims_late, "keeps part": SwarmFan.keeps_part, "releases": SwarmFan.releases,
    "watches": SwarmFan.watches,
}  # fmt: skip
