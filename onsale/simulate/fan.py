"""A simulated fan: joins, waits, claims, chooses, holds and pays; may give up, and may send a request twice."""

import asyncio
import random
import time
import uuid
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

import httpx

from onsale.simulate.browser import Browser
from onsale.simulate.observations import Observations
from onsale.simulate.profiles import CALM, Profile

SHARE_SEATED, SHARE_BOTH = 0.6, 0.1
PICKS_MAX = 8
ORDER_PATIENCE_S = 120.0
ROOM_CLOSED = {409, 410}  # sold out, or not open: the fan came too late or too early
FINAL = {"confirmed", "cancelled", "expired", "review", "refunded", "partially_refunded"}


class GaveUp(Exception):
    """This fan ends without tickets; the message says why."""


class Fan:
    """One fan. With `watches` it holds a live stream while it waits, otherwise it polls."""

    def __init__(
        self,
        event: dict[str, Any],
        browser: Browser,
        observations: Observations,
        *,
        seed: int,
        watches: bool,
        profile: Profile = CALM,
    ) -> None:
        self._rng = random.Random(seed)  # noqa: S311 - a simulation, not a secret
        self._browser, self._observations, self._event, self._watches = browser, observations, event, watches
        self._path, self._profile = f"/events/{event['event_id']}", profile
        self._token = self._pass = self._checkout_key = ""
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

    async def _request(self, name: str, method: str, path: str, **more: Any) -> tuple[int, dict[str, Any]]:
        status, answer = await self._browser.request(name, method, path, **more)
        if status == 0 or status == 429 or status >= 500:
            self._observations.failed[f"{name} {status}"] += 1
            raise GaveUp(f"{name} failed")
        return status, answer

    async def _read(self, name: str, path: str, **more: Any) -> dict[str, Any]:
        """A public read; a fan cannot continue when it is refused."""
        status, answer = await self._request(name, "GET", path, **more)
        if status != 200:
            self._observations.failed[f"{name} {status}"] += 1
            raise GaveUp(f"{name} refused ({status})")
        return answer

    async def _join(self) -> None:
        key = str(uuid.uuid4())  # not from the seed: the same fans may come again
        requests = [
            self._request("join", "POST", f"{self._path}/queue", key=key)
            for _ in range(1 + self._happens(self._profile.repeats_hold))
        ]
        answers = await asyncio.gather(*requests)
        status, place = answers[0]
        if status not in {200, 201}:
            if status not in ROOM_CLOSED:
                self._observations.failed[f"join {status}"] += 1
            raise GaveUp(f"not let in ({status})")
        if len({answer["join_seq"] for _, answer in answers}) > 1:
            self._observations.failed["two numbers for one fan"] += 1
        self._token, self._join_seq = place["queue_token"], place["join_seq"]
        self._observations.joined_at_place(self._join_seq)

    async def _wait(self) -> None:
        leaves_at = time.monotonic() + self._rng.uniform(1, 30) if self._happens(self._profile.leaves_line) else None
        while True:
            asked_at = time.monotonic()
            status, place = await self._request("status", "GET", f"{self._path}/queue/status", token=self._token)
            if status != 200 or place["status"] in {"expired", "left", "completed"}:
                raise GaveUp("lost the place" if status != 200 else place["status"])
            if place["status"] in {"ready", "admitted"}:
                self._observations.record_call(self._join_seq, time.monotonic())
                return
            self._observations.check_not_overtaken(self._join_seq, asked_at)
            if leaves_at and asked_at > leaves_at:
                await self._request("leave", "DELETE", f"{self._path}/queue", token=self._token)
                self._observations.gave_up += 1
                raise GaveUp("left the line")
            if place["state"] in {"sold_out", "closed"}:
                self._observations.empty_handed += 1
                raise GaveUp("sold out while waiting")
            await self._pause(place["poll_after_ms"] / 1000)

    async def _pause(self, seconds: float) -> None:
        """Waits until the next poll; a fan with a stream polls as soon as the line reaches the place."""
        if not self._watches:
            await asyncio.sleep(seconds)
            return
        try:
            async with asyncio.timeout(seconds):
                await self._watch()
        except (TimeoutError, httpx.TransportError):
            return

    async def _watch(self) -> None:
        async with aclosing(self._browser.listen(f"{self._path}/sections/updates", token=self._token)) as frames:
            async for kind, frame in frames:
                if kind == "line" and (frame["head_seq"] >= self._join_seq or frame["state"] in {"sold_out", "closed"}):
                    return
        await asyncio.sleep(1)

    async def _claim(self) -> None:
        status, answer = await self._request("pass", "POST", f"{self._path}/queue/pass", token=self._token)
        if status != 200:
            raise GaveUp(f"not admitted ({status})")
        self._pass, self._checkout_key = answer["pass"], answer["checkout_key"]

    async def _hold(self) -> dict[str, Any]:
        for _ in range(PICKS_MAX):
            selection = await self._choose()
            if selection is None:
                break
            key = str(uuid.uuid4())  # not from the seed: the same fans may come again
            status, answer = await self._request(
                "hold", "POST", f"{self._path}/reservations", token=self._pass, key=key, body=selection
            )
            if status == 201 or status == 200:
                self._observations.held += 1
                return answer
            if status != 409:
                raise GaveUp(f"hold refused ({status})")
        self._observations.empty_handed += 1
        raise GaveUp("nothing left to choose")

    async def _choose(self) -> dict[str, Any] | None:
        """Selects some seats of one section, some GA tickets, or both; None when nothing is left."""
        answer = await self._read("sections", f"{self._path}/sections")
        most = self._event["limits"]["tickets_per_order"]
        open_now = [section for section in answer["sections"] if section["available_seats"] > 0]
        seated = [section for section in open_now if section["kind"] == "seated"]
        ga = [section for section in open_now if section["kind"] == "ga"]
        selection: dict[str, Any] = {}
        wants_a_seat = seated and (not ga or self._happens(SHARE_SEATED))
        if wants_a_seat and (seats := await self._pick(self._rng.choice(seated), self._rng.randint(1, most))):
            selection["seats"] = seats
        taken = len(selection.get("seats", ()))
        if ga and taken < most and (not selection or self._happens(SHARE_BOTH)):
            section = self._rng.choice(ga)
            quantity = min(self._rng.randint(1, most - taken), section["available_seats"])
            selection["ga"] = [{"section_id": section["section_id"], "quantity": quantity}]
        return selection or None

    async def _pick(self, section: dict[str, Any], wanted: int) -> list[str]:
        size = 100
        page = self._rng.randint(1, -(-section["total_seats"] // size))
        path = f"{self._path}/sections/{section['section_id']}/seats?page={page}&page_size={size}"
        status, answer = await self._request("seats", "GET", path, token=self._pass)
        if status != 200:
            raise GaveUp(f"seats refused ({status})")
        free = [seat["seat_id"] for seat in answer["seats"] if seat["status"] == "available"]
        start = self._rng.randrange(max(1, len(free) - wanted + 1))
        return free[start : start + wanted]

    async def _buy(self, reservation: dict[str, Any]) -> None:
        if self._happens(self._profile.leaves_hold):
            path = f"{self._path}/reservations/{reservation['reservation_id']}"
            await self._request("give back", "DELETE", path, token=self._pass)
            self._observations.gave_up += 1
            raise GaveUp("gave the hold back")
        named = {"reservation_id": reservation["reservation_id"]}
        status, quote = await self._request("quote", "POST", "/orders/quote", token=self._pass, body=named)
        if status != 200:
            raise GaveUp(f"quote refused ({status})")
        body = {
            **named,
            "expected_total_minor": quote["total_minor"],
            "currency": reservation["currency"],
            "customer": {
                "name": f"Fan {self._join_seq}",
                "email": f"fan-{self._join_seq}-{uuid.uuid4().hex[:8]}@example.org",
            },
            "payment": self._payment(),
        }
        key = f"{self._checkout_key}.{reservation['reservation_id']}"
        requests = [
            self._request("order", "POST", "/orders", token=self._pass, key=key, body=body)
            for _ in range(1 + self._happens(self._profile.repeats_hold))
        ]
        answers = await asyncio.gather(*requests)
        status, order = answers[0]
        if status not in {200, 202}:
            raise GaveUp(f"order refused ({status})")
        if len({answer["reference"] for _, answer in answers}) > 1:
            self._observations.failed["two orders for one purchase"] += 1
        await self._follow_order(reservation, order)

    def _payment(self) -> dict[str, str]:
        return {"provider": "sandbox", "method": self._weighted_choice(self._profile.methods)}

    def _weighted_choice(self, weights: Mapping[str, int]) -> str:
        return self._rng.choices(list(weights), list(weights.values()))[0]

    async def _follow_order(self, reservation: dict[str, Any], order: dict[str, Any]) -> None:
        """Follows the order to its end: pays again after a decline, answers on the provider's page, may cancel."""
        path, token = f"/orders/{order['reference']}", order["order_token"]
        begun_s, pause_s, payments, pages = time.monotonic(), 0.3, 1, set[str]()
        cancels_s = self._cancels_after_s()
        now: dict[str, Any] = {"status": "pending"}
        while now["status"] not in FINAL:
            open_for_s = time.monotonic() - begun_s
            if open_for_s > ORDER_PATIENCE_S:
                self._observations.failed["order still open"] += 1
                raise GaveUp("order still open")
            await asyncio.sleep(pause_s * self._rng.uniform(0.7, 1.3))
            pause_s = min(3.0, pause_s * 1.4)
            _, now = await self._request("order status", "GET", path, token=token)
            attempt = now.get("attempt") or {}
            if now["status"] == "pending" and open_for_s > cancels_s:
                cancels_s = ORDER_PATIENCE_S
                await self._request("cancel", "POST", f"{path}/cancel", token=token)
            elif (page := attempt.get("checkout_url")) and page not in pages:
                pages.add(page)
                await self._browser.press_button(page, self._weighted_choice(self._profile.page))
            elif attempt.get("status") == "failed" and payments < self._profile.payments_max:
                payments += 1
                last = payments == self._profile.payments_max
                body = {"payment": {"provider": "sandbox", "method": "ok"} if last else self._payment()}
                await self._request(
                    "pay again", "POST", f"{path}/payments", token=token, key=str(uuid.uuid4()), body=body
                )
        if now["status"] != "confirmed":
            raise GaveUp(f"order {now['status']}")
        tickets = len(reservation["seats"]) + sum(part["quantity"] for part in reservation["ga"])
        self._observations.record_purchase(list(reservation["seats"]), tickets)

    def _cancels_after_s(self) -> float:
        if self._happens(self._profile.cancels):
            return self._rng.uniform(0.0, 2.0)
        return self._profile.patience_s or ORDER_PATIENCE_S
