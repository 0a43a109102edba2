"""A reservation as the ledger has it, read in one go with its places."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from sqlalchemy.ext.asyncio import AsyncConnection

from services.inventory.basket import basket_text
from shared.contracts.inventory import CustomerLimit, Line, Reservation, ReservationState, StepDone
from shared.postgres import statement

READ = statement(__package__, "read_reservations")


@dataclass(slots=True)
class Record:
    """`seats` are (section_id, position, seat_id, price), `ga` (section_id, quantity, price)."""

    event_id: str
    reservation_id: str
    holder: str
    status: ReservationState
    lane: int
    join_seq: int
    total_minor: int
    currency: str
    reserved_until_ms: int
    grace_s: int
    order_reference: str | None
    fingerprint: str
    extended: bool
    payment_extended: bool
    version: int
    given_back: int
    seats: list[tuple[str, int, str, int]] = field(default_factory=list)
    ga: list[tuple[str, int, int]] = field(default_factory=list)

    @property
    def quantity(self) -> int:
        return len(self.seats) + sum(quantity for _, quantity, _ in self.ga)

    @property
    def is_live(self) -> bool:
        return self.status in ("pending_payment", "paying")

    @property
    def release_at_ms(self) -> int:
        return self.reserved_until_ms + self.grace_s * 1000

    def basket(self) -> str:
        """As the gate's scripts read it."""
        return basket_text(((s, p) for s, p, _, _ in self.seats), ((s, q) for s, q, _ in self.ga))

    def places(self) -> dict[str, Any]:
        """For facts and logs."""
        return {
            "seats": [seat_id for _, _, seat_id, _ in self.seats],
            "ga": [{"section_id": s, "quantity": quantity} for s, quantity, _ in self.ga],
        }

    def contract(self) -> Reservation:
        """As neighbours see it."""
        seats = [Line(section_id=s, seat_id=seat_id, unit_price_minor=price) for s, _, seat_id, price in self.seats]
        ga = [Line(section_id=s, quantity=quantity, unit_price_minor=price) for s, quantity, price in self.ga]
        return Reservation(
            event_id=self.event_id, reservation_id=self.reservation_id, holder=self.holder,
            status=self.status, lane=self.lane, join_seq=self.join_seq, total_minor=self.total_minor,
            currency=self.currency, reserved_until_ms=self.reserved_until_ms, grace_s=self.grace_s,
            order_reference=self.order_reference, given_back=self.given_back, lines=seats + ga,
        )  # fmt: skip


@dataclass(slots=True)
class Payer(Record):
    """A reservation about to be paid: of its places only how many there are."""

    tickets: int = 0

    @property
    def quantity(self) -> int:
        return self.tickets


@dataclass(slots=True)
class Live:
    """A live reservation as the gate needs it: `seats` are (section_id, position), `ga` (section_id, quantity)."""

    reservation_id: str
    holder: str
    status: ReservationState
    reserved_until_ms: int
    fingerprint: str
    grace_s: int
    seats: list[tuple[str, int]] = field(default_factory=list)
    ga: list[tuple[str, int]] = field(default_factory=list)

    @property
    def quantity(self) -> int:
        return len(self.seats) + sum(quantity for _, quantity in self.ga)

    @property
    def release_at_ms(self) -> int:
        return self.reserved_until_ms + self.grace_s * 1000

    def basket(self) -> str:
        """As the gate's scripts read it."""
        return basket_text(self.seats, self.ga)


def step_done(record: Record | None, word: str, *, over: CustomerLimit | None = None) -> StepDone:
    """The answer to one step: its word, and the reservation as it is now."""
    told = (
        {name: getattr(record, name) for name in ("order_reference", "status", "reserved_until_ms")} if record else {}
    )
    return StepDone.model_validate({"word": word, "over": over, **told})


async def read(connection: AsyncConnection, reservation_ids: Sequence[str]) -> dict[str, Record]:
    """Those that exist, by id."""
    rows = await connection.execute(READ, {"ids": list(reservation_ids)})
    return {row.reservation_id: _record(*row) for row in rows}


def _record(*columns: Any) -> Record:
    *own, seats, ga = columns
    return Record(*[*own, _places(seats), _places(ga)])


def _places(found: str | None) -> list[Any]:
    return [tuple(place) for place in orjson.loads(found)] if found else []
