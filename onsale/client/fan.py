"""`Fan`: one fan of one event, from joining to tickets. It keeps the credentials that each step gives to the next."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Self

from onsale.client.connection import Problem
from onsale.client.fan_calls import Client
from onsale.client.fan_documents import (
    CustomerDetails,
    JoinedAnswer,
    KeepBody,
    LineAnswer,
    NewOrder,
    OrderAccepted,
    OrdersPage,
    OrderView,
    PassAnswer,
    Payment,
    ReservationView,
    ReserveBody,
    StatusAnswer,
    TicketsAnswer,
    TypesBody,
)

CALLED, LOST, OVER = {"ready", "admitted"}, {"completed", "expired", "left"}, {"sold_out", "closed"}
ENDED = {"confirmed", "cancelled", "expired", "review", "refunded", "partially_refunded"}
FOREVER_S = float("inf")
FIRST_READ_S = 4.0
ORDER_GROWTH = 1.25  # of the pause between two looks at an order, which nearly always is settled at the first
HOLDS_MAX, NOT_WRITTEN = 3, "hold-expired"


class NotCalled(Exception):
    """The wait is over without a call; `last` is the last status."""

    def __init__(self, last: StatusAnswer) -> None:
        super().__init__(f"The wait is over: {last['status']}, {last['state']}.")
        self.last = last


@dataclass(frozen=True, slots=True)
class Pace:
    """How often a fan asks: about the place as the suite says, but at least every `poll_max_s`; about the order first
    after `order_first_s`, then less and less often.
    """

    poll_max_s: float = FOREVER_S
    order_first_s: float = 0.3
    order_max_s: float = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Paying:
    """How a fan sees an order through. `follow` is called with each status; `again` names the payment after a decline,
    by its number; `at_page` goes to the provider's page. `cancels_after_s` is how long the order may stay pending.
    """

    follow: Callable[[OrderView], object] = lambda _: None
    again: Callable[[int], Payment | None] = lambda _: None
    at_page: Callable[[str], Awaitable[object]] | None = None
    cancels_after_s: float = FOREVER_S


class Fan:
    """One fan. Every method raises `Problem`; each may be repeated after one without an answer.

    `queue_token`, `admission` (the pass) and `checkout_key` are None until there are any; a fan that was stored goes on
    with the values it had. `customer` and `payment` are those of orders that are given none.
    """

    def __init__(
        self, client: Client, event_id: str, *, customer: CustomerDetails | None = None, payment: Payment | None = None,
        pace: Pace = Pace(),
    ) -> None:  # fmt: skip
        self.client, self.event_id, self.pace = client, event_id, pace
        self.customer, self.payment = customer, payment
        self.queue_token: str | None = None
        self.admission: str | None = None
        self.checkout_key: str | None = None
        self.join_seq = 0
        self.lane: int | None = None  # known to the process that joined

    async def join(self, *, code: str | None = None, key: str | None = None) -> JoinedAnswer:
        """Takes a place in the line; `code` opens a lane. The same `key` gets the same place."""
        place = await self.client.join(self.event_id, {"code": code} if code else None, key=key)
        self.queue_token, self.join_seq, self.lane = place["queue_token"], place["join_seq"], place["lane"]
        return place

    async def status(self) -> StatusAnswer:
        """The status of the place, which asking keeps."""
        return await self.client.status(self.event_id, token=self.queue_token)

    async def wait(self, follow: Callable[[StatusAnswer], object] = lambda _: None) -> StatusAnswer:
        """Waits for the call, asking as often as the suite says, which also keeps the place. Far back in a long line it
        reads the public line meanwhile, which a cache answers.

        Calls `follow` with each status. The answer is the last one: `ready` or `admitted` if the fan was called,
        otherwise the wait is over without.
        """
        while True:
            place = await self.status()
            follow(place)
            if is_over(place):
                return place
            await self.pause(place)

    async def pause(self, place: StatusAnswer, *, watches: bool = False) -> None:
        """Waits until it is time to ask again: as long as this status says. A fan who `watches` holds a live stream
        meanwhile, and asks as soon as the line reaches the place or the sale is over.
        """
        heartbeat_ms = place.get("heartbeat_after_ms")
        if heartbeat_ms and self.lane is not None and not watches:
            await self._follow_line(place, min(heartbeat_ms / 1000, self.pace.poll_max_s))
            return
        seconds = min(place["poll_after_ms"] / 1000, self.pace.poll_max_s)
        if not watches:
            await asyncio.sleep(seconds)
            return
        try:
            async with (
                asyncio.timeout(seconds),
                aclosing(self.client.event_updates(self.event_id, token=self.queue_token)) as updates,
            ):
                async for kind, frame in updates:
                    if kind == "line" and (frame["head_seq"] >= self.join_seq or frame["state"] in OVER):
                        return
        except (TimeoutError, Problem):
            return

    async def _follow_line(self, place: StatusAnswer, seconds: float) -> None:
        """Reads the public line until the place is near its head, or for so many seconds at most. A cache may have an
        older line than the status was made of, so it is not read at once.
        """
        until_s, pause_s = time.monotonic() + seconds * _sooner(), FIRST_READ_S
        while (left_s := until_s - time.monotonic()) > 0:
            await asyncio.sleep(min(left_s, pause_s * _sooner()))
            line = await self.client.line(self.event_id)
            if line["state"] in OVER or _is_near(place, line, self.lane or 0):
                return
            pause_s = line["poll_after_ms"] / 1000

    async def claim(self) -> PassAnswer:
        """Turns the call into the pass to buy with. Each claim answers the same pass."""
        answer = await self.client.claim(self.event_id, token=self.queue_token)
        self.admission, self.checkout_key = answer["pass"], answer["checkout_key"]
        return answer

    async def come_in(self) -> Self:
        """Joins, waits and claims. Raises `NotCalled`."""
        await self.join()
        last = await self.wait()
        if last["status"] not in CALLED:
            raise NotCalled(last)
        await self.claim()
        return self

    async def leave(self) -> None:
        """Gives the place in the line back."""
        await self.client.leave(self.event_id, token=self.queue_token)

    async def hold(self, selection: ReserveBody, *, key: str | None = None) -> ReservationView:
        """Holds seats, general admission or the best available, all or nothing. A hold that came too late to be written
        is asked for anew, unless `key` says which request it is.
        """
        for _ in range(HOLDS_MAX - 1):
            try:
                return await self.client.hold(self.event_id, selection, key=key, token=self.admission)
            except Problem as problem:
                if key is not None or problem.slug != NOT_WRITTEN:
                    raise
        return await self.client.hold(self.event_id, selection, key=key, token=self.admission)

    async def keep(self, reservation: ReservationView, part: KeepBody) -> ReservationView:
        """Keeps these places of a reservation and releases all others."""
        return await self.client.keep(self.event_id, reservation["reservation_id"], part, token=self.admission)

    async def change_types(self, reservation: ReservationView, types: TypesBody) -> ReservationView:
        """Changes the price types of what is held; the places and the time stay."""
        held = reservation["reservation_id"]
        return await self.client.change_types(self.event_id, held, types, token=self.admission)

    async def extend(self, reservation: ReservationView) -> ReservationView:
        """Holds longer, once."""
        return await self.client.extend(self.event_id, reservation["reservation_id"], token=self.admission)

    async def release(self, reservation: ReservationView) -> None:
        """Gives what is held back."""
        await self.client.release(self.event_id, reservation["reservation_id"], token=self.admission)

    async def order(
        self,
        reservation: ReservationView,
        customer: CustomerDetails | None = None,
        payment: Payment | None = None,
        *,
        promo_code: str | None = None,
        names: Sequence[str] = (),
    ) -> OrderAccepted:
        """Orders what is held, at the price it is quoted now. A reservation makes one order, sent how often ever.
        `names` has one for each ticket, where the event asks for them.
        """
        customer, payment = customer or self.customer, payment or self.payment
        if customer is None or payment is None:
            raise ValueError("an order needs a customer and a payment")
        held, code = reservation["reservation_id"], promo_code
        quote = await self.client.quote({"reservation_id": held, "promo_code": code}, token=self.admission)
        body: NewOrder = {
            "reservation_id": held, "expected_total_minor": quote["total_minor"], "currency": quote["currency"],
            "customer": customer, "payment": payment, "promo_code": code,
        }  # fmt: skip
        if names:
            body["names"] = list(names)
        return await self.client.create_order(body, key=f"{self.checkout_key}.{held}", token=self.admission)

    async def settled(self, order: OrderAccepted) -> OrderView:
        """The order once it is no longer pending. One that waits for the fan on the provider's page goes on pending."""
        pause_s = self.pace.order_first_s
        while (now := await self.client.order(order["reference"], token=order["order_token"]))["status"] == "pending":
            pause_s = await self._pause_before_order(pause_s)
        return now

    async def see_through(self, order: OrderAccepted, paying: Paying) -> OrderView:
        """The order once it has ended: pays again after a decline, goes to the provider's page, cancels in time. What
        the suite refuses because it comes too late changes nothing.
        """
        reference, token = order["reference"], order["order_token"]
        began_s, pause_s, payments, pages, cancels = time.monotonic(), self.pace.order_first_s, 1, set[str](), True
        while True:
            pause_s = await self._pause_before_order(pause_s)
            now = await self.client.order(reference, token=token)
            paying.follow(now)
            attempt = now["attempt"]
            if now["status"] in ENDED:
                return now
            if cancels and time.monotonic() - began_s > paying.cancels_after_s:
                cancels = False
                await _unless_too_late(self.client.cancel_order(reference, token=token))
            elif attempt and (url := attempt["checkout_url"]) and url not in pages:
                pages.add(url)
                if paying.at_page is not None:
                    await paying.at_page(url)
            elif attempt and attempt["status"] == "failed" and (payment := paying.again(payments + 1)):
                payments += 1
                await _unless_too_late(self.client.pay_again(reference, {"payment": payment}, token=token))

    async def buy(
        self, reservation: ReservationView, customer: CustomerDetails | None = None, payment: Payment | None = None
    ) -> OrderView:
        """Orders what is held; the order once it is no longer pending."""
        return await self.settled(await self.order(reservation, customer, payment))

    async def tickets(self, order: OrderAccepted) -> TicketsAnswer:
        """The tickets of a confirmed order, with their codes."""
        return await self.client.tickets(order["reference"], token=order["order_token"])

    async def orders(self) -> OrdersPage:
        """The orders of this pass, newest first."""
        return await self.client.orders(token=self.admission)

    async def _pause_before_order(self, seconds: float) -> float:
        """Waits before the order is asked about again; the next such pause."""
        await asyncio.sleep(seconds * random.uniform(0.7, 1.3))  # noqa: S311 - spreads requests
        return min(self.pace.order_max_s, seconds * ORDER_GROWTH)


def is_over(place: StatusAnswer) -> bool:
    """Whether the wait is over: the fan is called, the place is lost or the sale has ended."""
    return place["status"] in CALLED | LOST or place["state"] in OVER


def _is_near(place: StatusAnswer, line: LineAnswer, lane: int) -> bool:
    """Whether the fan of a waiting place has to ask for its status: it is near the head, the line is not long any more,
    or its rank was drawn and is not known yet.
    """
    at = (line.get("lanes") or {}).get(str(lane)) if lane else line
    lottery = line.get("lottery")
    rank = place["join_seq"] if lottery is None else place.get("rank")
    if not line["heartbeat_after_ms"] or at is None or (rank is None and lottery == "drawn"):
        return True
    return rank is not None and rank - at["head_seq"] <= line["near_places"]


def _sooner() -> float:
    """Up to a fifth less, so that fans who were told the same do not ask at the same time."""
    return random.uniform(0.8, 1.0)  # noqa: S311


async def _unless_too_late(request: Awaitable[object]) -> None:
    try:
        await request
    except Problem as problem:
        if not problem.is_refusal:
            raise
