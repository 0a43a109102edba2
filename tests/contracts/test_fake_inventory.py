"""The inventory double of orders' tests answers every payment step as the real inventory does."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.inventory.settings import Settings
from tests.contracts.internal_calls import Answer, assert_same_answers, call_internal, client_of
from tests.inventory.conftest import EVENT, Inventory, event_file, settings_of, start
from tests.orders.holds import EVENT as EVENT_OF_DOUBLE
from tests.orders.holds import Holds, InventoryDouble

UNKNOWN = "0" * 32
STEPS = ("begin-payment", "end-payment", "confirm", "release", "reacquire", "returns")
EARLIER_STEPS = {
    "held": [],
    "being paid": ["begin-payment"],
    "payment ended": ["begin-payment", "end-payment"],
    "sold": ["begin-payment", "confirm"],
    "released": ["begin-payment", "release"],
    "reacquired": ["begin-payment", "release", "reacquire"],
    "returned": ["begin-payment", "confirm", "returns"],
}


class Real:
    """The real inventory, on PostgreSQL and Redis."""

    event_id = EVENT

    def __init__(self, inventory: Inventory) -> None:
        self.inventory, self.client = inventory, inventory.internal

    async def hold(self, holder: str, **selection: Any) -> str:
        selection = selection or {"ga_section": "GA1", "ga_quantity": 1}
        reserved = await self.inventory.reserve(holder, **selection)
        assert reserved.status_code == 201, reserved.text
        return str(reserved.json()["reservation_id"])

    async def sell_to_another(self, reservation_id: str) -> None:
        """Another fan takes the released seat of this reservation."""
        await self.hold("late", seats=["A-1-1"])


class Fake:
    """The inventory double with the methods of `Real`."""

    event_id = EVENT_OF_DOUBLE

    def __init__(self) -> None:
        double = InventoryDouble(Holds(customer_max=1))
        self.holds, self.client = double.holds, client_of(double.app())

    async def hold(self, holder: str, **selection: Any) -> str:
        return self.holds.hold(holder)

    async def sell_to_another(self, reservation_id: str) -> None:
        self.holds.taken.add(reservation_id)


@pytest.fixture
def settings(redis_url: str, postgres_url: str) -> Settings:
    return settings_of(redis_url, postgres_url)


@pytest.fixture
async def both(settings: Settings) -> AsyncIterator[tuple[Real, Fake]]:
    async for inventory in start(settings):
        file = event_file(open_orders_per_customer=1)
        file["sections"][-1]["capacity"] = 50
        assert (await inventory.put(file)).status_code == 200
        await inventory.until_ready()
        yield Real(inventory), Fake()


async def send_step(side: Any, step: str, reservation_id: str, order: str, **more: Any) -> Answer:
    steps = {"steps": [{"event_id": side.event_id, "reservation_id": reservation_id, "order_reference": order, **more}]}
    reason = {"reason": "a refund"} if step == "returns" else {}
    return await call_internal(side.client, f"/reservations/{step}", **steps, **reason)


@pytest.mark.parametrize("state", EARLIER_STEPS)
async def test_every_step_in_every_state_gets_the_same_answer(state: str, both: tuple[Real, Fake]) -> None:
    async def answers_of(side: Any) -> list[tuple[str, str, Answer]]:
        answers = []
        for order in ("MINE", "OTHER"):
            for step in STEPS:
                reservation_id = await side.hold(f"{state}-{order}-{step}")
                for earlier in EARLIER_STEPS[state]:
                    await send_step(side, earlier, reservation_id, "MINE")
                answers.append((order, step, await send_step(side, step, reservation_id, order)))
                answers.append((order, f"{step} again", await send_step(side, step, reservation_id, order)))
        return answers

    await assert_same_answers(both, answers_of)


async def test_every_refused_step_gets_the_same_answer(both: tuple[Real, Fake]) -> None:
    async def answers_of(side: Any) -> list[Answer]:
        first, second, lost = [await side.hold(f"fan-{n}") for n in "12"] + [await side.hold("fan-3", seats=["A-1-1"])]
        answers = [
            await send_step(side, "begin-payment", first, "ONE", released_tickets=1),
            await send_step(side, "begin-payment", first, "ONE", released_tickets=0, customer_key="ada"),
            await send_step(side, "begin-payment", second, "TWO", customer_key="ada"),
            await send_step(side, "end-payment", first, "ONE"),
            await send_step(side, "begin-payment", second, "TWO", customer_key="ada"),
        ]
        for step in ("begin-payment", "release"):
            await send_step(side, step, lost, "THREE")
        await side.sell_to_another(lost)
        answers.append(await send_step(side, "reacquire", lost, "THREE"))
        return answers + [await send_step(side, step, UNKNOWN, "FOUR") for step in STEPS]

    await assert_same_answers(both, answers_of)


async def test_ticket_returns_and_reads_of_reservations_get_the_same_answers(both: tuple[Real, Fake]) -> None:
    async def answers_of(side: Any) -> list[Answer]:
        reservation_id = await side.hold("fan")
        request: dict[str, Any] = {"return_id": "R.1", "order_reference": "MINE", "reason": "a refund",
                                   "event_id": side.event_id, "reservation_id": reservation_id}  # fmt: skip
        request["ga"] = [{"section_id": "GA1", "quantity": 1}]
        answers = []
        for step in ("begin-payment", "confirm"):
            answers.append(await call_internal(side.client, "/reservations/ticket-returns", **request))
            answers.append(await send_step(side, step, reservation_id, "MINE"))
        next_return = {"return_id": "R.2"}
        answers += [
            await call_internal(side.client, "/reservations/ticket-returns", **{**request, **changes})
            for changes in ({"order_reference": "OTHER"}, {}, {}, next_return, {"reservation_id": UNKNOWN})
        ]
        status, body = await call_internal(side.client, "/reservations/read", reservation_ids=[reservation_id, UNKNOWN])
        known, unknown = body["reservations"]
        state = {name: known[name] for name in ("status", "order_reference", "released_tickets", "currency", "grace_s")}
        return [*answers, (status, (unknown, sorted(known), state))]

    await assert_same_answers(both, answers_of)
