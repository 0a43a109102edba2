"""Visits of a trial: each fan has one of several behaviours, makes choices from a seed, and insists on answers.

Operators of a trial: what they do to the sale, and its opening. What they are refused changes nothing.
"""

import asyncio
import random
import time
import uuid
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

import httpx

from onsale.admin_client import AdminClient
from onsale.client import Fan, Problem
from onsale.client.connection import new_key
from onsale.client.fan import CALLED, ENDED, Pace, Paying, is_over
from onsale.client.fan_documents import (
    BestAvailable,
    GaTickets,
    KeepBody,
    OrderAccepted,
    OrderView,
    Payment,
    ReservationView,
    ReserveBody,
    TypesBody,
)
from onsale.errors import OperatorError
from proof.insistence import InsistentClient, Meetings
from proof.swarm.plan import Plan, PlannedAction, PlannedFan
from shared.concurrency.background import stop
from shared.contracts.event_file import EventFile

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
        page: httpx.AsyncClient, *, tickets_max: int, types: Collection[str] = (),
    ) -> None:  # fmt: skip
        self.plan, self.meetings, self.orders, self.page = plan, meetings, orders, page
        self.rng = random.Random(plan.seed)
        client = InsistentClient(
            url, meetings, http=http, rng=self.rng, repeats=plan.repeats, timeout_s=TIMEOUT_S
        )  # fmt: skip
        self.fan = Fan(client, event_id, customer={"name": "A fan", "email": f"fan-{plan.seed}@example.org"}, pace=PACE)
        self.stage, self.tickets_max, self.types = "outside", tickets_max, types
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
                held = await self.fan.hold(self._selection(), key=self._new_key())
                self._compare_prices(held)
                return await self._with_other_types(held)
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
            best: BestAvailable = {"quantity": count, "section_id": self.rng.choice(("A", "GA1"))}
            if self.types and self.rng.random() < 0.5:
                best["types"] = {"child": self.rng.randint(1, count)}
            return {"best_available": best}
        selection: ReserveBody = {}
        if kind != "ga":
            selection["seats"] = seats
        if kind != "seats":
            selection["ga"] = [{"section_id": "GA1", "quantity": count}]
        return {**selection, **self._typed(seats if kind != "ga" else [], count if kind != "seats" else 0)}

    def _typed(self, seats: Sequence[str], ga: int) -> TypesBody:
        """These places at price types of the fan's choice: some of them are carers without a child, and refused."""
        if not self.types:
            return {}
        kinds = Counter(self.rng.choices((None, "child", "carer"), (6, 4, 1), k=ga))
        parts: list[GaTickets] = [{"section_id": "GA1", "quantity": n, "type_id": kind} for kind, n in kinds.items()]
        wanted: TypesBody = {"ga": parts} if parts else {}
        if children := {seat: "child" for seat in seats if self.rng.random() < 0.4}:
            wanted["types"] = children
        return wanted

    async def _with_other_types(self, held: ReservationView) -> ReservationView:
        """Changes the price types now and then; what is refused stays as it was."""
        if not self.types or self.rng.random() < 0.5:
            return held
        wanted = self._typed(held["seats"], sum(part["quantity"] for part in held["ga"] if part["section_id"] == "GA1"))
        try:
            changed = await self.fan.client.change_types(
                self.fan.event_id, held["reservation_id"], wanted, token=self.fan.admission
            )  # fmt: skip
        except Problem as refused:
            if refused.status != 409:
                raise
            return held
        self._compare_prices(changed)
        return changed

    def _compare_prices(self, held: ReservationView) -> None:
        """Each ticket costs what the event file says of its type at its place; no carer is without a child."""
        counts, total = Counter[str](), 0
        for ticket in held["tickets"]:
            kind = ticket["type_id"] or "adult"
            counts[kind] += ticket["quantity"]
            total += ticket["quantity"] * ticket["unit_price_minor"]
            expected = PRICES.get((ticket["section_id"], kind))
            if expected != ticket["unit_price_minor"]:
                self.meetings.found.append(f"a ticket does not cost {expected}: {ticket}")
        if total != held["total_amount_minor_units"] or counts["carer"] > counts["child"]:
            self.meetings.found.append(f"these tickets are not sold together at this price: {held}")

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
    ticket = held["tickets"][0]
    return {"ga": [{"section_id": ticket["section_id"], "quantity": 1, "type_id": ticket["type_id"]}]}


def _payment(method: str) -> Payment:
    return {"provider": "sandbox", "method": method}


BEHAVIOURS: Mapping[str, Callable[[Visit], Awaitable[None]]] = {
    "buys": Visit.buy, "pays in every way": Visit.pays_in_every_way, "declined, pays again": Visit.declined,
    "cancels": Visit.cancels, "leaves": Visit.leaves, "comes back": Visit.comes_back,
    "claims late": Visit.claims_late, "keeps part": Visit.keeps_part, "releases": Visit.releases,
    "watches": Visit.watches,
}  # fmt: skip


PRICES = {
    ("A", "adult"): 5250, ("A", "child"): 2000, ("GA1", "adult"): 3000, ("GA1", "child"): 1500, ("GA1", "carer"): 0,
    ("PROBE", "adult"): 90000,
}  # fmt: skip
FLOOR_PLACES, PROBE_PLACES = 40, 4
PROBE_SECTION = "PROBE"
REASON = {"reason": "swarm"}


def event_file(event_id: str, plan: Plan) -> EventFile:
    """The event of a trial: a block, a floor, an allotment, and places that only the last fan buys."""
    return EventFile.model_validate({
        "event_id": event_id, "name": "Swarm", "venue": "A hall", "currency": "EUR",
        "starts_at": "2030-01-01T20:00:00Z",
        "room": {"rate_per_s": 20, "burst": 20, "max_active": 200, **plan.room},
        "sales": {"hold_ttl_s": 20, "pay_ttl_s": 20, "active_reservations_per_customer": 0, **plan.sales},
        "price_types": _price_types(plan.types),
        "sections": [
            {"section_id": "A", "name": "Block A", "kind": "seated", "rows": ROWS, "seats_per_row": SEATS_PER_ROW,
             "price_minor": 5000, "fee_minor": 250, "prices": {"child": 2000} if plan.types else {}},
            {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": FLOOR_PLACES, "price_minor": 3000},
            {"section_id": PROBE_SECTION, "name": "Balcony", "kind": "ga", "capacity": PROBE_PLACES,
             "price_minor": 90000},
        ],
        "allotments": [{"allotment_id": "house", "name": "House", "kind": "house", "seats": ["A-4-7", "A-4-8"]}],
    })  # fmt: skip


def _price_types(quotas: Mapping[str, int | None]) -> list[dict[str, Any]]:
    if not quotas:
        return []
    return [
        {"type_id": "adult", "name": "Adult"},
        {"type_id": "child", "name": "Child", "percent": 50, "fee_minor": 0, "quota": quotas["child"]},
        {"type_id": "carer", "name": "Companion", "price_minor": 0, "companion_of": ["child"],
         "quota": quotas["carer"]},
    ]  # fmt: skip


class SwarmOperator:
    """Does the planned actions. `orders` are references of the fans' orders."""

    def __init__(self, admin: AdminClient, event: EventFile, orders: list[str]) -> None:
        self.admin, self.event, self.event_id, self.orders = admin, event, event.event_id, orders
        self.refused: list[str] = []

    async def open(self, hooks_url: str) -> None:
        await self.admin.apply(self.event)
        await self.admin.create_webhook_endpoint({"url": hooks_url, "event_id": self.event_id, **REASON})
        await self.admin.set_room_state(self.event_id, "open", REASON)

    async def do(self, planned: PlannedAction) -> None:
        try:
            await ACTIONS[planned.action](self, random.Random(planned.seed))
        except OperatorError as refused:
            self.refused.append(f"{planned.action}: {refused}")

    async def make_easy(self) -> None:
        """Ends every restriction that an operator may have made, so that everybody's turn comes."""
        for state in ("resume", "open"):
            with suppress(OperatorError):
                await self.admin.set_room_state(self.event_id, state, REASON)
        changes = {"rate_per_s": 100, "burst": 100, "max_active": 500, "liveness_window_s": 30, **REASON}
        await self.admin.change_room(self.event_id, changes)

    async def change_rate(self, rng: random.Random) -> None:
        change = {"rate_per_s": rng.choice((0, 1, 5, 50)), "max_active": rng.choice((1, 5, 200)), **REASON}
        await self.admin.change_room(self.event_id, change)

    async def pause(self, rng: random.Random) -> None:
        await self.admin.set_room_state(self.event_id, rng.choice(("pause", "resume", "resume", "drain")), REASON)

    async def admit(self, rng: random.Random) -> None:
        await self.admin.admit(self.event_id, {"count": rng.randint(1, 5), **REASON}, key=new_key())

    async def block_seat(self, rng: random.Random) -> None:
        await self.admin.block_places(self.event_id, {**_places(rng), **REASON})

    async def unblock_seat(self, rng: random.Random) -> None:
        await self.admin.unblock_places(self.event_id, {**_places(rng), **REASON})

    async def resize(self, rng: random.Random) -> None:
        change = {"capacity": rng.choice((FLOOR_PLACES // 2, FLOOR_PLACES, FLOOR_PLACES + 10)), **REASON}
        await self.admin.resize_section(self.event_id, "GA1", change)

    async def open_allotment(self, _: random.Random) -> None:
        await self.admin.open_allotment(self.event_id, "house", REASON)

    async def refund_order(self, rng: random.Random) -> None:
        if self.orders:
            body = {"return_to_sale": rng.random() < 0.5, **REASON}
            await self.admin.refund_order(rng.choice(self.orders), body, key=new_key())

    async def refund_ticket(self, rng: random.Random) -> None:
        if self.orders:
            body: dict[str, Any] = {"tickets": {"ga": [{"section_id": "GA1", "quantity": 1}]}, **REASON}
            body["return_to_sale"] = rng.random() < 0.5
            await self.admin.refund_order(rng.choice(self.orders), body, key=new_key())

    async def cancel_order(self, rng: random.Random) -> None:
        if self.orders:
            await self.admin.cancel_order(rng.choice(self.orders), REASON)

    async def edit_event(self, rng: random.Random) -> None:
        now = await self.admin.event_file(self.event_id)
        sales = now.sales.model_copy(update={"hold_ttl_s": rng.choice((5, 9, 20))})
        await self.admin.apply(now.model_copy(update={"name": f"Swarm {rng.randint(1, 9)}", "sales": sales}))

    async def rebuild_room(self, _: random.Random) -> None:
        await self.admin.rebuild_room(self.event_id, REASON)

    async def reconcile(self, _: random.Random) -> None:
        await self.admin.reconcile(self.event_id, REASON)

    async def release_holds(self, _: random.Random) -> None:
        await self.admin.release_all_holds(self.event_id, REASON)


def _places(rng: random.Random) -> dict[str, Any]:
    if rng.random() < 0.3:
        return {"ga": [{"section_id": "GA1", "quantity": rng.randint(1, 5)}]}
    return {"seats": [f"A-{rng.randint(1, ROWS)}-{rng.randint(1, SEATS_PER_ROW)}"]}


ACTIONS: Mapping[str, Callable[[SwarmOperator, random.Random], Awaitable[None]]] = {
    "change rate": SwarmOperator.change_rate, "pause": SwarmOperator.pause, "admit": SwarmOperator.admit,
    "block seat": SwarmOperator.block_seat, "unblock seat": SwarmOperator.unblock_seat,
    "resize": SwarmOperator.resize, "open allotment": SwarmOperator.open_allotment,
    "refund order": SwarmOperator.refund_order, "refund ticket": SwarmOperator.refund_ticket,
    "edit event": SwarmOperator.edit_event, "rebuild room": SwarmOperator.rebuild_room,
    "reconcile": SwarmOperator.reconcile, "release holds": SwarmOperator.release_holds,
    "cancel order": SwarmOperator.cancel_order,
}  # fmt: skip
