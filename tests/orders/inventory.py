"""The real inventory beside orders, in the process of the test: the holds of its fans, and how each comes to its end.

Its background loops are off. An event is on sale from its first hold on.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastapi import FastAPI
from sqlalchemy import text

from features.stock.inventory.blocking import move_places
from features.stock.schemas import PlacesChange
from services.inventory import app as inventory_app
from services.inventory.layout.layout import Layout
from services.inventory.layout.selection import GaLine, SeatLine, Selection
from services.inventory.reservations.expiry import expire_overdue
from services.inventory.reservations.payment import BEGIN, CONFIRM, RELEASE, Transition
from services.inventory.reservations.reserve import ReservationRequest, Reserved
from services.inventory.settings import Settings
from services.inventory.state import State
from services.inventory.tables import metadata
from services.inventory.tuning import DEFAULTS
from shared import rpc
from shared.contracts.event_file import EventFile
from shared.contracts.inventory import PaymentStep, Reservation, ReservedItem
from shared.runtime.clock import now_ms
from shared.web.app import internal
from shared.web.parts import with_settings_of_parts
from tests.support.neighbours import Connections, FaultyNeighbour
from tests.support.running.serving import borrowed_app

EVENT = "flash"
URL, ORDERS_URL = "http://inventory", "http://orders"
ROWS, SEATS_PER_ROW = 10, 10
STEPS = {
    "begin-payment", "extend-payment", "end-payment", "confirm", "release", "reacquire", "returns", "ticket-returns",
}  # fmt: skip
SALES = {
    "hold_ttl_s": 60, "pay_ttl_s": 60, "tickets_per_customer": 0, "active_reservations_per_customer": 0,
    "open_orders_per_customer": 0,
}  # fmt: skip
SET_DEADLINE = text("UPDATE inventory.reservation SET reserved_until_ms = :until_ms WHERE reservation_id = :id")
TRAVEL = text("UPDATE inventory.reservation SET reserved_until_ms = reserved_until_ms - :ms")
ASK_AGAIN = text("UPDATE inventory.reservation SET reminders_requested = true WHERE reservation_id = :id")


class Inventory:
    """The inventory of one test. `neighbour` is what orders calls. `sales` are the rules of an event, until its first
    hold, and `price_types` the types of some.
    """

    def __init__(self, app: FastAPI) -> None:
        self.neighbour = FaultyNeighbour(internal(app))
        self.sales: dict[str, Any] = dict(SALES)
        self.price_types: dict[str, Sequence[dict[str, Any]]] = {}
        self._app, self._on_sale, self._seats_given = app, set[str](), 0
        self._putting_on_sale = asyncio.Lock()

    @property
    def state(self) -> State:
        state: State = self._app.state.deps
        return state

    async def clear(self) -> None:
        """Nothing is on sale, also if another one has used these servers."""
        await self._run(text(f"TRUNCATE {', '.join(map(str, metadata.sorted_tables))}"))
        self._on_sale, self._seats_given = set(), 0

    async def hold(
        self, holder: str = "fan", *, total_minor: int = 6800, lines: Sequence[ReservedItem] = (),
        until_ms: int | None = None, event_id: str = EVENT, currency: str = "EUR", reminders_to: str | None = None,
    ) -> str:  # fmt: skip
        """Holds these lines, at their prices, or one floor ticket; returns the id. Its deadline is `until_ms` from now,
        by default that of the event. `reminders_to` is the address of a fan who consents to reminders.
        """
        layout = await self._layout(event_id, currency)
        lines = lines or [ReservedItem(section_id="GA1", unit_price_minor=total_minor)]
        selection, reservation_id = _selection(layout, lines), uuid.uuid4().hex
        request = ReservationRequest(
            layout=layout, reservation_id=reservation_id, holder=holder, jti="", selection=selection,
            redis_request={"selection": selection.text()}, stock_hash=reservation_id, body_hash="", has_key=False,
            join_seq=7, email=reminders_to, reminders=reminders_to is not None,
        )  # fmt: skip
        made = await self.state.batchers[event_id].reserve(request)
        assert isinstance(made, Reserved)
        if until_ms is not None:
            await self.set_deadline(reservation_id, in_ms=until_ms)
        return reservation_id

    def free_seat(self, unit_price_minor: int = 6800) -> ReservedItem:
        """A seat that this returned for no other hold."""
        row, seat = divmod(self._seats_given, SEATS_PER_ROW)
        self._seats_given += 1
        return ReservedItem(section_id="A", seat_id=f"A-{row + 1}-{seat + 1}", unit_price_minor=unit_price_minor)

    @property
    def steps(self) -> list[str]:
        """The calls by which orders changed reservations, in order: the ends of their paths."""
        paths = (call.path.removeprefix("/reservations/") for call in self.neighbour.requests)
        return [path for path in paths if path in STEPS]

    async def read(self, reservation_id: str) -> Reservation:
        """The reservation as orders sees it."""
        [found] = await self.state.holds.read_many([(None, reservation_id)])
        assert found is not None
        return found

    async def status(self, reservation_id: str) -> str:
        return (await self.read(reservation_id)).status

    async def has_status(self, reservation_id: str, status: str) -> bool:
        return await self.status(reservation_id) == status

    async def tickets(self, reservation_id: str) -> list[str]:
        """Its tickets that were not returned: a seat by its id, a floor ticket by its section."""
        held = await self.read(reservation_id)
        lines = [] if held.status == "returned" else held.lines
        return sorted(line.seat_id or line.section_id for line in lines for _ in range(line.quantity))

    async def set_deadline(self, reservation_id: str, *, in_ms: int) -> None:
        """Moves the deadline to `in_ms` from now."""
        await self._run(SET_DEADLINE, until_ms=now_ms() + in_ms, id=reservation_id)

    async def travel(self, seconds: float) -> None:
        """Lets time pass, by moving every deadline into the past."""
        await self._run(TRAVEL, ms=round(seconds * 1000))

    async def ask_again(self, reservation_id: str) -> None:
        """Its consent to reminders is as if orders had never acknowledged it."""
        await self._run(ASK_AGAIN, id=reservation_id)

    async def _run(self, statement: Any, **values: Any) -> None:
        async with self.state.db.begin() as connection:
            await connection.execute(statement, values)

    async def begin(self, reservation_id: str, order_reference: str) -> None:
        """A payment begins for this order."""
        await self._take(BEGIN, await self.read(reservation_id), order_reference)

    async def sell(self, reservation_id: str) -> None:
        """Sells it, to the order that pays for it if there is one."""
        held = await self.read(reservation_id)
        buyer = held.order_reference or f"ORDER{reservation_id}"
        for transition in (BEGIN, CONFIRM):
            await self._take(transition, held, buyer)

    async def return_all(self, reservation_id: str) -> None:
        """The tickets of a sold one are for sale again."""
        sold = await self.read(reservation_id)
        [done] = await self.state.returns.return_stock(
            [_step(sold, sold.order_reference)], keep_blocked=False, reason="rain", actor="tests"
        )
        assert done.outcome == "done", done

    async def unblock(self, *seat_ids: str) -> None:
        """An operator puts these seats on sale again, where they were returned blocked."""
        places = PlacesChange(seats=list(seat_ids), reason="rain")
        await move_places(self.state, EVENT, "unblock", places, by="tests")

    async def cancel(self, reservation_id: str) -> None:
        """Its fan gives it back."""
        await self.state.holds.release(await self.state.holds.read(reservation_id))

    async def keep_only(self, reservation_id: str, **ga: int) -> None:
        """Its fan keeps so many floor tickets by section, and releases all else."""
        row, layout = await self.state.holds.read(reservation_id), self.state.catalogue.layout(EVENT)
        await self.state.holds.keep_only(row, layout, [], ga={(section_id, ""): n for section_id, n in ga.items()})

    async def expire(self, reservation_id: str) -> None:
        """Its deadline has passed; an order that pays for it is given up."""
        held = await self.read(reservation_id)
        await self._run(SET_DEADLINE, until_ms=0, id=reservation_id)
        if held.status == "paying":
            await self._take(RELEASE, held, held.order_reference)
        else:
            await expire_overdue(self.state.db, self.state.redis_stock, held.event_id, now_ms=now_ms())

    async def sell_to_another(self, reservation_id: str) -> str:
        """Another fan buys the places of a hold that has ended: the same seats, and all floor tickets that are left.
        Returns the reservation of that fan.
        """
        ended = await self.read(reservation_id)
        frame = await self.state.availability.frame_from_db(ended.event_id)
        left = {section.section_id: section.available for section in frame.sections}
        lines = [
            line if line.seat_id else line.model_copy(update={"quantity": left[line.section_id]})
            for line in ended.lines
        ]
        other = await self.hold("another", lines=lines, event_id=ended.event_id, currency=ended.currency)
        await self.sell(other)
        return other

    async def _take(self, transition: Transition, held: Reservation, order_reference: str | None) -> None:
        [done] = await self.state.payments.take(transition, [_step(held, order_reference)], reason="orders-gone")
        assert done.outcome == "done", done

    async def _layout(self, event_id: str, currency: str) -> Layout:
        async with self._putting_on_sale:
            if event_id not in self._on_sale:
                types = self.price_types.get(event_id, ())
                file = EventFile.model_validate(_event_file(event_id, currency, self.sales, types))
                await self.state.event_files.apply(file, actor="tests", reason=None, dry_run=False)
                self._on_sale.add(event_id)
        return self.state.catalogue.layout(event_id)


def _event_file(
    event_id: str, currency: str, sales: dict[str, Any], price_types: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "event_id": event_id, "name": "A Show", "venue": "A Hall", "currency": currency,
        "starts_at": "2030-01-01T20:00:00Z", "sales": sales, "price_types": list(price_types),
        "sections": [
            {"section_id": "A", "name": "Block A", "kind": "seated", "rows": ROWS, "seats_per_row": SEATS_PER_ROW,
             "price_minor": 6800},
            {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 50_000, "price_minor": 6800},
        ],
    }  # fmt: skip


def _step(held: Reservation, order_reference: str | None) -> PaymentStep:
    assert order_reference is not None
    return PaymentStep(
        event_id=held.event_id, reservation_id=held.reservation_id, order_reference=order_reference
    )  # fmt: skip


def _selection(layout: Layout, lines: Sequence[ReservedItem]) -> Selection:
    """The lines at the prices that they had when the fan took them; the event file may have others by now."""
    seats = [
        SeatLine(line.section_id, layout.section("A").position(*line.seat_id.split("-")[1:]), line.seat_id,
                 line.unit_price_minor, line.type_id)
        for line in lines if line.seat_id
    ]  # fmt: skip
    ga = [
        GaLine(line.section_id, line.quantity, line.unit_price_minor, line.type_id)
        for line in lines
        if not line.seat_id
    ]
    return Selection(tuple(sorted(seats)), tuple(sorted(ga, key=lambda line: line.key)))


@asynccontextmanager
async def open_inventory(
    postgres_url: str, redis_url: str, connections: Connections | None = None
) -> AsyncIterator[Inventory]:
    """Inventory on these servers; it reaches orders through `connections`, if at all."""
    settings = with_settings_of_parts(Settings, "inventory")(
        postgres_url=postgres_url, redis_url=redis_url, orders_url=ORDERS_URL, log_requests=False,
    )  # fmt: skip
    with borrowed_app(inventory_app.create_app, settings, DEFAULTS) as app, pytest.MonkeyPatch.context() as patch:
        patch.setattr(inventory_app, "_start", lambda *_: None)
        patch.setattr(rpc, "client", connections or Connections({}))
        async with app.router.lifespan_context(app):
            patch.undo()
            yield Inventory(app)
