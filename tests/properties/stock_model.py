"""The stock as a person with a notebook would keep it: who has what, and the word each step must be answered with."""

from collections.abc import Iterable
from dataclasses import dataclass, field

SEATS = tuple(f"A-{row}-{number}" for row in (1, 2) for number in (1, 2, 3))
FLOOR = 5
TICKETS_MAX, LIVE_MAX = 4, 2
HOLD_TTL_S, PAY_TTL_S, GRACE_S = 120, 60, 5
DUE_MS = 5_000  # a hold that is gated must be in the database by then


@dataclass(frozen=True)
class Wish:
    """Seats, and how many places on the floor."""

    seats: frozenset[str]
    floor: int

    @property
    def size(self) -> int:
        return len(self.seats) + self.floor


NOTHING = Wish(frozenset(), 0)


@dataclass
class Entry:
    """One reservation as the database must have it."""

    reservation_id: str
    holder: str
    wish: Wish
    until_ms: int
    status: str = "pending_payment"
    reference: str | None = None
    extended: bool = False
    payment_extended: bool = False
    asked: Wish = NOTHING

    def __post_init__(self) -> None:
        self.asked = self.wish  # before a part was given back

    @property
    def is_live(self) -> bool:
        return self.status in ("pending_payment", "paying")

    @property
    def has_its_places(self) -> bool:
        return self.is_live or self.status == "confirmed"

    def overdue(self, now_ms: int) -> bool:
        return self.status == "pending_payment" and self.until_ms + 1000 * GRACE_S < now_ms


@dataclass
class Notebook:
    """Every reservation; `unwritten` are gated by a process that has not reached the database, `astray` those whose
    last change Redis did not hear of.
    """

    entries: dict[str, Entry] = field(default_factory=dict)
    unwritten: dict[str, Entry] = field(default_factory=dict)
    astray: set[str] = field(default_factory=set)
    lost: bool = False  # Redis has forgotten, and nobody has filled it yet
    believes_the_past: bool = False  # what it remembers instead is from before

    def of(self, holder: str) -> list[Entry]:
        return [e for e in (*self.entries.values(), *self.unwritten.values()) if e.holder == holder]

    def taken(self, entries: Iterable[Entry]) -> tuple[set[str], int]:
        had = [entry for entry in entries if entry.has_its_places]
        return {seat for e in had for seat in e.wish.seats}, sum(e.wish.floor for e in had)

    def is_sure(self, holder: str, wish: Wish, now_ms: int) -> bool:
        """Whether nothing unsettled, in ledger or gate, has to do with this wish."""
        if self.believes_the_past:
            return False
        unsettled = [e for e in self.entries.values() if e.reservation_id in self.astray or e.overdue(now_ms)]
        return not any(
            e.holder == holder or e.asked.seats & wish.seats or (e.asked.floor and wish.floor)
            for e in (*unsettled, *self.unwritten.values())
        )

    def word(self, holder: str, wish: Wish) -> str:
        """What Redis must say to a wish while everything is settled."""
        if self.lost:
            return "unavailable"
        mine = self.of(holder)
        live = [entry for entry in mine if entry.is_live]
        if any(entry.asked == wish for entry in live):
            return "again"
        seats, floor = self.taken(mine)
        if len(live) >= LIVE_MAX or len(seats) + floor + wish.size > TICKETS_MAX:
            return "limit-exceeded"
        seats, floor = self.taken((*self.entries.values(), *self.unwritten.values()))
        if seats & wish.seats:
            return "seats-taken"
        return "sold-out" if wish.floor and floor + wish.floor > FLOOR else "held"

    def write(self, entry: Entry) -> None:
        """The database took it: nothing of it may belong to anybody else."""
        seats, floor = self.taken(e for e in self.entries.values() if e.reservation_id != entry.reservation_id)
        assert not seats & entry.wish.seats, f"{entry} got seats that were somebody else's"
        assert floor + entry.wish.floor <= FLOOR, f"{entry} got places on the floor that were not there"
        self.entries[entry.reservation_id] = entry

    def are_free(self, entry: Entry) -> bool:
        """Whether the database has all of its places left."""
        seats, floor = self.taken(self.entries.values())
        return not seats & entry.wish.seats and floor + entry.wish.floor <= FLOOR

    def step(self, verb: str, entry: Entry, reference: str, now_ms: int) -> str:
        """One step of payment: the word, and what the entry has become."""
        return {"begin": self._begin, "end": self._end, "confirm": self._confirm, "release": self._release,
                "reacquire": self._reacquire}[verb](entry, reference, now_ms)  # fmt: skip

    def _begin(self, entry: Entry, reference: str, now_ms: int) -> str:
        if entry.status in ("paying", "confirmed") and entry.reference == reference:
            return "done"
        if entry.status == "paying":
            return "payment-in-progress"
        if entry.status != "pending_payment" or entry.overdue(now_ms):
            return "ended"
        if not entry.payment_extended:
            entry.until_ms = max(entry.until_ms, now_ms + 1000 * PAY_TTL_S)
            entry.payment_extended = True
        entry.status, entry.reference = "paying", reference
        return "done"

    def _end(self, entry: Entry, reference: str, now_ms: int) -> str:
        if entry.is_live and entry.reference == reference:
            entry.status = "pending_payment"
            return "done"
        return "not-owner" if entry.is_live else "ended"

    def _confirm(self, entry: Entry, reference: str, now_ms: int) -> str:
        mine = entry.reference == reference
        if mine and entry.status in ("paying", "confirmed"):
            entry.status = "confirmed"
            return "done"
        return "not-owner" if entry.has_its_places else "ended"

    def _release(self, entry: Entry, reference: str, now_ms: int) -> str:
        mine = entry.reference == reference
        if entry.is_live and not mine:
            return "not-owner"
        if entry.is_live:
            entry.status = "expired" if now_ms > entry.until_ms + 1000 * GRACE_S else "cancelled"
            return "done"
        return "done" if mine and entry.status != "confirmed" else "ended"

    def _reacquire(self, entry: Entry, reference: str, now_ms: int) -> str:
        mine = entry.reference == reference
        if entry.status == "confirmed":
            return "done" if mine else "not-owner"
        if entry.status == "paying" and not mine:
            return "payment-in-progress"
        if not entry.is_live and not self.are_free(entry):
            return "taken"
        entry.status, entry.reference = "confirmed", reference
        return "done"
