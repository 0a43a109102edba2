"""A model of the stock in plain Python: every reservation, and the outcome that each request must have."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

SEATS = tuple(f"A-{row}-{number}" for row in (1, 2) for number in (1, 2, 3))
GA_CAPACITY, CHILDREN_MAX = 5, 3  # so many of the price type child there are in all
TICKETS_MAX, LIVE_MAX = 4, 2
HOLD_TTL_S, PAY_TTL_S, GRACE_S = 120, 60, 5


@dataclass(frozen=True)
class Selection:
    """Seats, and a number of GA tickets: all of the usual price type but these seats and GA tickets of children, and GA
    tickets of carers, each of whom needs a child.
    """

    seats: frozenset[str]
    ga: int
    child_seats: frozenset[str] = frozenset()
    ga_children: int = 0
    ga_carers: int = 0

    @property
    def size(self) -> int:
        return len(self.seats) + self.ga

    @property
    def children(self) -> int:
        return len(self.child_seats) + self.ga_children

    @property
    def is_allowed(self) -> bool:
        """Whether no carer is without a child."""
        return self.ga_carers <= self.children

    @property
    def types(self) -> dict[str, int]:
        """Tickets by price type, without the usual one."""
        return {name: n for name, n in (("carer", self.ga_carers), ("child", self.children)) if n}

    def typed(self, child_seats: Iterable[str], ga_children: int, ga_carers: int) -> "Selection":
        """The same places, with as many of these price types as there are tickets for."""
        children = min(ga_children, self.ga)
        carers = min(ga_carers, self.ga - children)
        return Selection(self.seats, self.ga, self.seats.intersection(child_seats), children, carers)

    def kept(self, seats: frozenset[str], ga: int) -> "Selection":
        """What is left of it if these seats and so many GA tickets are kept: carers and children rather than others."""
        ga_carers = min(self.ga_carers, ga)
        children = min(self.ga_children, ga - ga_carers)
        return Selection(self.seats & seats, min(self.ga, ga), self.child_seats & seats, children, ga_carers)


NOTHING = Selection(frozenset(), 0)


@dataclass
class Reservation:
    """A reservation as the database must have it."""

    reservation_id: str
    holder: str
    selection: Selection
    until_ms: int
    status: str = "pending_payment"
    reference: str | None = None
    extended: bool = False
    payment_extended: bool = False
    binding: tuple[int, bool] | None = None  # the deadline before its payment, and whether that had had its time
    requested: Selection = NOTHING  # before a partial release

    def __post_init__(self) -> None:
        self.requested = self.selection

    @property
    def is_live(self) -> bool:
        return self.status in ("pending_payment", "paying")

    @property
    def owns_stock(self) -> bool:
        return self.is_live or self.status == "confirmed"

    def is_overdue(self, now_ms: int) -> bool:
        return self.status == "pending_payment" and self.until_ms + 1000 * GRACE_S < now_ms


@dataclass
class StockModel:
    """All reservations. `unwritten` are granted by Redis but not yet in the database; Redis missed the last change of
    those in `out_of_sync`.
    """

    reservations: dict[str, Reservation] = field(default_factory=dict)
    unwritten: dict[str, Reservation] = field(default_factory=dict)
    out_of_sync: set[str] = field(default_factory=set)
    redis_lost: bool = False  # Redis lost its data and is not rebuilt yet
    redis_outdated: bool = False  # Redis restored an older snapshot instead

    def of_holder(self, holder: str) -> list[Reservation]:
        return [r for r in (*self.reservations.values(), *self.unwritten.values()) if r.holder == holder]

    def types_taken(self, reservations: Iterable[Reservation]) -> Counter[str]:
        """Live and sold tickets of each price type but the usual one."""
        types = Counter[str]()
        for reservation in reservations:
            types.update(reservation.selection.types if reservation.owns_stock else {})
        return types

    def taken(self, reservations: Iterable[Reservation]) -> tuple[set[str], int]:
        owners = [reservation for reservation in reservations if reservation.owns_stock]
        return {seat for r in owners for seat in r.selection.seats}, sum(r.selection.ga for r in owners)

    def is_predictable(self, holder: str, selection: Selection, now_ms: int) -> bool:
        """Whether no unfinished reservation concerns this holder or selection."""
        if self.redis_outdated:
            return False
        unfinished = [
            r for r in self.reservations.values() if r.reservation_id in self.out_of_sync or r.is_overdue(now_ms)
        ]
        return not any(
            r.holder == holder
            or r.requested.seats & selection.seats
            or (r.requested.ga and selection.ga)
            or (selection.children and (r.requested.children or r.selection.children))
            for r in (*unfinished, *self.unwritten.values())
        )

    def expected_outcome(self, holder: str, selection: Selection) -> str:
        """The outcome of a request that is predictable."""
        if not selection.is_allowed:
            return "price-type-refused"
        if self.redis_lost:
            return "unavailable"
        own = self.of_holder(holder)
        live = [reservation for reservation in own if reservation.is_live]
        if any(reservation.requested == selection for reservation in live):
            return "again"
        seats, ga = self.taken(own)
        if len(live) >= LIVE_MAX or len(seats) + ga + selection.size > TICKETS_MAX:
            return "limit-exceeded"
        seats, ga = self.taken((*self.reservations.values(), *self.unwritten.values()))
        if seats & selection.seats:
            return "seats-taken"
        children = self.types_taken((*self.reservations.values(), *self.unwritten.values()))["child"]
        if selection.children and children + selection.children > CHILDREN_MAX:
            return "sold-out"
        return "sold-out" if selection.ga and ga + selection.ga > GA_CAPACITY else "held"

    def expected_change(self, reservation: Reservation, wanted: Selection, now_ms: int) -> set[str] | None:
        """What a change of the price types of a reservation may come to; None where nothing is promised."""
        if not wanted.is_allowed:
            return {"price-type-refused"}
        if reservation.status != "pending_payment" or reservation.is_overdue(now_ms) or reservation.reference:
            return {"payment-in-progress", "already-bought", "hold-expired"}
        if wanted == reservation.selection:
            return {"changed"}
        if self.redis_outdated:
            return None
        if self.redis_lost:
            return {"unavailable"}
        if self.unwritten or self.out_of_sync or any(r.is_overdue(now_ms) for r in self.reservations.values()):
            return {"changed", "sold-out", "unavailable"}
        more = wanted.children - reservation.selection.children
        children = self.types_taken(self.reservations.values())["child"]
        return {"sold-out" if more > 0 and children + more > CHILDREN_MAX else "changed"}

    def write(self, reservation: Reservation) -> None:
        """The database has the reservation: its stock must not belong to another one."""
        others = [r for r in self.reservations.values() if r.reservation_id != reservation.reservation_id]
        seats, ga = self.taken(others)
        assert reservation.selection.is_allowed, f"{reservation} has a carer without a child"
        children = self.types_taken(others)["child"] + reservation.selection.children
        assert children <= CHILDREN_MAX, f"{reservation} has more children than there are tickets for"
        assert not seats & reservation.selection.seats, f"{reservation} has seats of another reservation"
        assert ga + reservation.selection.ga <= GA_CAPACITY, f"{reservation} has GA tickets above the capacity"
        self.reservations[reservation.reservation_id] = reservation

    def is_free(self, reservation: Reservation) -> bool:
        """Whether the database has all stock of the reservation left."""
        seats, ga = self.taken(self.reservations.values())
        wanted, children = reservation.selection, self.types_taken(self.reservations.values())["child"]
        if wanted.children and children + wanted.children > CHILDREN_MAX:
            return False
        return not seats & wanted.seats and ga + wanted.ga <= GA_CAPACITY

    def step(self, verb: str, reservation: Reservation, reference: str, now_ms: int) -> str:
        """Applies a step of a payment and returns its outcome."""
        steps = {
            "begin": self._begin, "end": self._end, "unbind": self._unbind, "confirm": self._confirm,
            "release": self._release, "reacquire": self._reacquire,
        }  # fmt: skip
        return steps[verb](reservation, reference, now_ms)

    def _begin(self, reservation: Reservation, reference: str, now_ms: int) -> str:
        if reservation.status in ("paying", "confirmed") and reservation.reference == reference:
            reservation.binding = None  # another request of the order has begun it
            return "done"
        if reservation.status == "paying":
            return "payment-in-progress"
        if reservation.status != "pending_payment" or reservation.is_overdue(now_ms):
            return "ended"
        reservation.binding = reservation.until_ms, reservation.payment_extended
        if not reservation.payment_extended:
            reservation.until_ms = max(reservation.until_ms, now_ms + 1000 * PAY_TTL_S)
            reservation.payment_extended = True
        reservation.status, reservation.reference = "paying", reference
        return "done"

    def _end(self, reservation: Reservation, reference: str, now_ms: int) -> str:
        if reservation.is_live and reservation.reference == reference:
            reservation.status = "pending_payment"
            return "done"
        return "not-owner" if reservation.is_live else "ended"

    def _unbind(self, reservation: Reservation, reference: str, now_ms: int) -> str:
        """The request that began the payment ends it."""
        if reservation.status == "paying" and reservation.binding is None:
            return "not-owner"
        was_paying, answer = reservation.status == "paying", self._end(reservation, reference, now_ms)
        if answer == "done" and was_paying and reservation.binding is not None:
            until_ms, had_time = reservation.binding
            if not had_time:
                reservation.until_ms, reservation.payment_extended, reservation.reference = until_ms, False, None
        return answer

    def _confirm(self, reservation: Reservation, reference: str, now_ms: int) -> str:
        is_owner = reservation.reference == reference
        if is_owner and reservation.status in ("paying", "confirmed"):
            reservation.status = "confirmed"
            return "done"
        return "not-owner" if reservation.owns_stock else "ended"

    def _release(self, reservation: Reservation, reference: str, now_ms: int) -> str:
        is_owner = reservation.reference == reference
        if reservation.is_live and not is_owner:
            return "not-owner"
        if reservation.is_live:
            reservation.status = "expired" if now_ms > reservation.until_ms + 1000 * GRACE_S else "cancelled"
            return "done"
        return "done" if is_owner and reservation.status != "confirmed" else "ended"

    def _reacquire(self, reservation: Reservation, reference: str, now_ms: int) -> str:
        is_owner = reservation.reference == reference
        if reservation.status == "confirmed":
            return "done" if is_owner else "not-owner"
        if reservation.status == "paying" and not is_owner:
            return "payment-in-progress"
        if not reservation.is_live and not self.is_free(reservation):
            return "taken"
        reservation.status, reservation.reference = "confirmed", reference
        return "done"
