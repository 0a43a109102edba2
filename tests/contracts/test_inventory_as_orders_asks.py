"""Inventory, and what stands in for it in the tests of orders, answer every step of payment alike."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.inventory.settings import Settings
from tests.contracts.internal_calls import Answer, call_internal, client_of
from tests.inventory.conftest import Inventory, event_file, settings_of, start
from tests.orders.holds import Holds, InventoryDouble

UNKNOWN = "0" * 32
VERBS = ("begin-payment", "end-payment", "confirm", "release", "reacquire", "returns")
BEFORE = {
    "held": [],
    "being paid": ["begin-payment"],
    "paid in vain": ["begin-payment", "end-payment"],
    "sold": ["begin-payment", "confirm"],
    "given up": ["begin-payment", "release"],
    "sold late": ["begin-payment", "release", "reacquire"],
    "given back": ["begin-payment", "confirm", "returns"],
}


class Real:
    """Inventory on its engines."""

    def __init__(self, inventory: Inventory) -> None:
        self.inventory, self.client = inventory, inventory.neighbours

    async def hold(self, holder: str, **wanted: Any) -> str:
        wanted = wanted or {"ga_section": "GA1", "ga_quantity": 1}
        held = await self.inventory.reserve(holder, **wanted)
        assert held.status_code == 201, held.text
        return str(held.json()["reservation_id"])

    async def lose(self, held: str) -> None:
        """Somebody else buys its place."""
        await self.hold("late", seats=["A-1-1"])


class Fake:
    """What stands in for it."""

    def __init__(self) -> None:
        environment = InventoryDouble(Holds(customer_max=1))
        self.holds, self.client = environment.holds, client_of(environment.app())

    async def hold(self, holder: str, **wanted: Any) -> str:
        return self.holds.hold(holder)

    async def lose(self, held: str) -> None:
        self.holds.taken.add(held)


@pytest.fixture
def settings(redis_url: str, postgres_url: str) -> Settings:
    return settings_of(redis_url, postgres_url)


@pytest.fixture
async def both(settings: Settings) -> AsyncIterator[tuple[Real, Fake]]:
    async for running in start(settings):
        file = event_file(open_orders_per_customer=1)
        file["sections"][-1]["capacity"] = 50
        assert (await running.put(file)).status_code == 200
        await running.ready()
        yield Real(running), Fake()


async def take(side: Any, verb: str, held: str, order: str, **more: Any) -> Answer:
    """One step; without the id, which is each side's own."""
    steps = {"steps": [{"reservation_id": held, "order_reference": order, **more}]}
    reason = {"reason": "a refund"} if verb == "returns" else {}
    return await call_internal(side.client, f"/reservations/{verb}", **steps, **reason)


@pytest.mark.parametrize("before", BEFORE)
async def test_every_step_is_answered_alike(before: str, both: tuple[Real, Fake]) -> None:
    async def answers(side: Any) -> list[tuple[str, str, Answer]]:
        told = []
        for order in ("MINE", "OTHER"):
            for verb in VERBS:
                held = await side.hold(f"{before}-{order}-{verb}")
                for earlier in BEFORE[before]:
                    await take(side, earlier, held, "MINE")
                told.append((order, verb, await take(side, verb, held, order)))
                told.append((order, f"{verb} again", await take(side, verb, held, order)))
        return told

    real, fake = [await answers(side) for side in both]
    assert fake == real


async def test_refusals_for_reasons_of_their_own_are_alike(both: tuple[Real, Fake]) -> None:
    async def answers(side: Any) -> list[Answer]:
        first, second, lost = [await side.hold(f"fan-{n}") for n in "12"] + [await side.hold("fan-3", seats=["A-1-1"])]
        told = [
            await take(side, "begin-payment", first, "ONE", released_tickets=1),
            await take(side, "begin-payment", first, "ONE", released_tickets=0, customer_key="ada"),
            await take(side, "begin-payment", second, "TWO", customer_key="ada"),
            await take(side, "end-payment", first, "ONE"),
            await take(side, "begin-payment", second, "TWO", customer_key="ada"),
        ]
        for verb in ("begin-payment", "release"):
            await take(side, verb, lost, "THREE")
        await side.lose(lost)
        told.append(await take(side, "reacquire", lost, "THREE"))
        return told + [await take(side, verb, UNKNOWN, "FOUR") for verb in VERBS]

    real, fake = [await answers(side) for side in both]
    assert fake == real


async def test_tickets_come_back_and_reservations_are_read_alike(both: tuple[Real, Fake]) -> None:
    async def answers(side: Any) -> list[Answer]:
        held = await side.hold("fan")
        asked: dict[str, Any] = {"return_id": "R.1", "order_reference": "MINE", "reason": "a refund"}
        asked["ga"] = [{"section_id": "GA1", "quantity": 1}]
        told = []
        for verb in ("begin-payment", "confirm"):
            told.append(await call_internal(side.client, "/reservations/ticket-returns", reservation_id=held, **asked))
            told.append(await take(side, verb, held, "MINE"))
        more = {"return_id": "R.2"}
        for changes in ({"order_reference": "OTHER"}, {}, {}, more, {"reservation_id": UNKNOWN}):
            question = {"reservation_id": held, **asked, **changes}
            told.append(await call_internal(side.client, "/reservations/ticket-returns", **question))
        status, body = await call_internal(side.client, "/reservations/read", reservation_ids=[held, UNKNOWN])
        seen, nobody = body["reservations"]
        stands = {name: seen[name] for name in ("status", "order_reference", "released_tickets", "currency", "grace_s")}
        return [*told, (status, (nobody, sorted(seen), stands))]

    real, fake = [await answers(side) for side in both]
    assert fake == real
