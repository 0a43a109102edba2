"""Operators of a trial: what they do to the sale, and its opening. What they are refused changes nothing."""

import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from onsale.admin_client import AdminClient
from onsale.client.connection import new_key
from onsale.errors import OperatorError
from proof.swarm.plan import Plan, PlannedAction
from proof.swarm.visits import ROWS, SEATS_PER_ROW
from shared.contracts.event_file import EventFile

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
        "sections": [
            {"section_id": "A", "name": "Block A", "kind": "seated", "rows": ROWS, "seats_per_row": SEATS_PER_ROW,
             "price_minor": 5000, "fee_minor": 250},
            {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": FLOOR_PLACES, "price_minor": 3000},
            {"section_id": PROBE_SECTION, "name": "Balcony", "kind": "ga", "capacity": PROBE_PLACES,
             "price_minor": 90000},
        ],
        "allotments": [{"allotment_id": "house", "name": "House", "kind": "house", "seats": ["A-4-7", "A-4-8"]}],
    })  # fmt: skip


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
