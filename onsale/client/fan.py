"""`Fan`: one fan of one event, from joining to tickets. It keeps the credentials that each step gives to the next."""

import asyncio
import random
from collections.abc import Callable

from onsale.client.fan_calls import Client
from onsale.client.fan_documents import (
    CustomerDetails,
    JoinedAnswer,
    NewOrder,
    OrderAccepted,
    OrderView,
    PassAnswer,
    Payment,
    ReservationView,
    ReserveBody,
    StatusAnswer,
    TicketsAnswer,
)

CALLED, LOST, OVER = {"ready", "admitted"}, {"completed", "expired", "left"}, {"sold_out", "closed"}
FOLLOW_S = (0.3, 3.0)  # between two looks at an order: first, at most


class Fan:
    """One fan. Every method raises `Problem`; `join`, `hold` and `order` may be repeated after one without an answer.

    `queue_token`, `admission` (the pass) and `checkout_key` are None until there are any; a fan that was stored goes on
    with the values it had.
    """

    def __init__(self, client: Client, event_id: str) -> None:
        self.client, self.event_id = client, event_id
        self.queue_token: str | None = None
        self.admission: str | None = None
        self.checkout_key: str | None = None

    async def join(self, *, code: str | None = None, key: str | None = None) -> JoinedAnswer:
        """Takes a place in the line; `code` opens a lane. The same `key` gets the same place."""
        place = await self.client.join(self.event_id, {"code": code} if code else None, key=key)
        self.queue_token = place["queue_token"]
        return place

    async def wait(self, follow: Callable[[StatusAnswer], object] = lambda _: None) -> StatusAnswer:
        """Waits for the call, asking as often as the suite says, which also keeps the place.

        Calls `follow` with each status. The answer is the last one: `ready` or `admitted` if the fan was called,
        otherwise the wait is over without.
        """
        while True:
            place = await self.client.status(self.event_id, token=self.queue_token)
            follow(place)
            if place["status"] in CALLED | LOST or place["state"] in OVER:
                return place
            await asyncio.sleep(place["poll_after_ms"] / 1000)

    async def claim(self) -> PassAnswer:
        """Turns the call into the pass to buy with. Each claim answers the same pass."""
        answer = await self.client.claim(self.event_id, token=self.queue_token)
        self.admission, self.checkout_key = answer["pass"], answer["checkout_key"]
        return answer

    async def hold(self, selection: ReserveBody, *, key: str | None = None) -> ReservationView:
        """Holds seats, general admission or the best available, all or nothing."""
        return await self.client.hold(self.event_id, selection, key=key, token=self.admission)

    async def order(
        self,
        reservation: ReservationView,
        customer: CustomerDetails,
        payment: Payment,
        *,
        promo_code: str | None = None,
    ) -> OrderAccepted:
        """Orders what is held, at the price it is quoted now. A reservation makes one order, sent how often ever."""
        held, code = reservation["reservation_id"], promo_code
        quote = await self.client.quote({"reservation_id": held, "promo_code": code}, token=self.admission)
        body: NewOrder = {
            "reservation_id": held, "expected_total_minor": quote["total_minor"], "currency": quote["currency"],
            "customer": customer, "payment": payment, "promo_code": code,
        }  # fmt: skip
        return await self.client.create_order(body, key=f"{self.checkout_key}.{held}", token=self.admission)

    async def settled(self, order: OrderAccepted) -> OrderView:
        """The order once it is no longer pending. One that waits for the fan on the provider's page goes on pending."""
        pause_s, longest_s = FOLLOW_S
        while True:
            now = await self.client.order(order["reference"], token=order["order_token"])
            if now["status"] != "pending":
                return now
            await asyncio.sleep(pause_s * random.uniform(0.7, 1.3))  # noqa: S311 - spreads requests
            pause_s = min(longest_s, pause_s * 1.4)

    async def tickets(self, order: OrderAccepted) -> TicketsAnswer:
        """The tickets of a confirmed order, with their codes."""
        return await self.client.tickets(order["reference"], token=order["order_token"])
