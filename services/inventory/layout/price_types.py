"""Which price types a fan may buy at which place, and what they cost there.

The rules are about one request and decided before the stock is asked; how many there are of a type in all is stock. A
ticket that breaks a rule is refused by name, and nothing of the request is held.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from services.inventory.problems import PriceTypeRefused, UnknownPriceType
from shared.contracts.event_parts.price_types import USUAL, PriceType, Trait
from shared.contracts.fields import code_key

ACCESSIBLE: tuple[Trait, ...] = ("wheelchair", "companion")


class Fan(NamedTuple):
    """What decides which types and places a fan may buy: the lane they came by, and the code that they named."""

    lane: int = 0
    code: str | None = None


class WantedTicket(NamedTuple):
    """One ticket or several of one kind, as the rules see it: `named` is its seat, or its section without seats."""

    type_id: str
    section_id: str
    traits: frozenset[Trait]
    named: str
    quantity: int = 1


@dataclass(frozen=True)
class PriceTypes:
    """The price types of an event by the id under which they are stored; empty if it has none."""

    types: tuple[PriceType, ...] = ()

    @classmethod
    def stored(cls, types: Iterable[Mapping[str, Any]]) -> "PriceTypes":
        """From the column of an event."""
        return cls(tuple(PriceType.model_validate(each) for each in types))

    @cached_property
    def by_id(self) -> dict[str, PriceType]:
        """All but the usual one."""
        return {each.type_id: each for each in self.types[1:]}

    @cached_property
    def _codes(self) -> dict[str, frozenset[str]]:
        return {each.type_id: frozenset(map(code_key, each.codes)) for each in self.types}

    def opens(self, code: str) -> bool:
        """Whether a type needs this code."""
        return any(code_key(code) in codes for codes in self._codes.values())

    def stored_id(self, type_id: str | None) -> str:
        """How the type that a request names is stored. Raises `UnknownPriceType`."""
        if type_id is None or (self.types and type_id == self.types[0].type_id):
            return USUAL
        if type_id not in self.by_id:
            known = ", ".join(each.type_id for each in self.types) or "none"
            raise UnknownPriceType(f"There is no price type {type_id}. The event's types are: {known}.")
        return type_id

    def named(self, stored: str) -> str:
        """The name of a type, as fans read it."""
        found = self.by_id.get(stored) or (self.types[0] if self.types else None)
        return found.name if found else stored

    def sold_in(self, section_id: str, traits: Iterable[Trait]) -> list[PriceType]:
        """The types besides the usual one that are sold at some places of a section, which have these traits."""
        return [each for each in self.by_id.values() if _is_sold(each, section_id, frozenset(traits))]

    def require(self, tickets: Sequence[WantedTicket], fan: Fan) -> None:
        """Raises `PriceTypeRefused` if the fan may not buy these tickets together."""
        if not self.types:
            return
        for each, own in self._by_type(tickets):
            self._require(each, own, tickets, fan)

    def require_anywhere(self, wanted: Mapping[str, int], fan: Fan) -> None:
        """The same for numbers of tickets by type whose places are not chosen yet."""
        tickets = [WantedTicket(type_id, "", frozenset(), type_id, n) for type_id, n in wanted.items()]
        for each, own in self._by_type(tickets):
            self._require_fan(each, own, tickets, fan)

    def assigned(self, wanted: Mapping[str, int], places: Sequence[frozenset[Trait]]) -> list[str]:
        """The type of each of these places, whose types were asked for by number alone; those that are over are usual.
        A type for places of some trait gets one of them; a companion does not sit on a wheelchair place; of places that
        are alike the last ones are of the last type.
        """
        found, guests = [USUAL] * len(places), {guest for each in self.types for guest in each.companion_of}
        kinds = [self.by_id[type_id] for type_id, n in wanted.items() for _ in range(n)]
        kinds.reverse()
        for kind in sorted(kinds, key=lambda each: (not each.traits, len(each.traits))):
            order = _SEATED["companion" if kind.companion_of else "guest" if kind.type_id in guests else "other"]
            free = [n for n, own in enumerate(found) if own == USUAL]
            fitting = [n for n in free if _is_for(kind, places[n])] or free
            found[max(fitting, key=lambda n: (-order.index(_role(places[n])), n))] = kind.type_id
        return found

    def require_seated(self, types: Mapping[str, int], quantity: int, *, wheelchair: int, companions: int) -> bool:
        """Whether companions need companion places for these types. Raises `PriceTypeRefused` if so many wheelchair
        places, companion places and others cannot be of the types.
        """
        places = [frozenset[Trait]({"wheelchair"})] * wheelchair + [frozenset[Trait]({"companion"})] * companions
        places += [frozenset[Trait]()] * (quantity - len(places))
        for type_id, traits in zip(self.assigned(types, places), places, strict=True):
            if type_id and not _is_for(self.by_id[type_id], traits):
                raise self.nowhere([type_id])
        return any("companion" in self.by_id[type_id].traits for type_id in types)

    def nowhere(self, types: Sequence[str]) -> PriceTypeRefused:
        """The problem for types that are not sold together anywhere that was asked for."""
        names = ", ".join(self.named(type_id) for type_id in types)
        says = f"There are no places there that are sold as {names} to who does not name the seats. Choose seats."
        return _refused(self.by_id[types[0]], "place", says, [])

    def require_together(self, tickets: Sequence[WantedTicket]) -> None:
        """Raises `PriceTypeRefused` for a companion without a guest: what is left of an order is together again."""
        for each, own in self._by_type(tickets):
            self._require_guest(each, own, tickets)

    def _by_type(self, tickets: Sequence[WantedTicket]) -> Iterator[tuple[PriceType, list[WantedTicket]]]:
        """Each type among these tickets but the usual one, in the order of their ids, and its own tickets."""
        for type_id in sorted({ticket.type_id for ticket in tickets} & self.by_id.keys()):
            yield self.by_id[type_id], [ticket for ticket in tickets if ticket.type_id == type_id]

    def _require(
        self, wanted: PriceType, own: Sequence[WantedTicket], tickets: Sequence[WantedTicket], fan: Fan
    ) -> None:
        if elsewhere := [t for t in own if not _is_sold(wanted, t.section_id, t.traits)]:
            says = f"{wanted.name} is not sold for {', '.join(t.named for t in elsewhere)}. Choose another price there."
            raise _refused(wanted, "place", says, elsewhere)
        self._require_fan(wanted, own, tickets, fan)

    def _require_fan(
        self, wanted: PriceType, own: Sequence[WantedTicket], tickets: Sequence[WantedTicket], fan: Fan
    ) -> None:
        if wanted.lanes and fan.lane not in wanted.lanes:
            says = f"{wanted.name} is only sold to fans who came by another line. Choose another price."
            raise _refused(wanted, "lane", says, own)
        if wanted.codes and (fan.code is None or code_key(fan.code) not in self._codes[wanted.type_id]):
            says = f"{wanted.name} needs a code" + (", and this is none of its codes." if fan.code else ".")
            raise _refused(wanted, "code", says, own)
        quantity = sum(ticket.quantity for ticket in own)
        if wanted.per_order is not None and quantity > wanted.per_order:
            says = f"At most {wanted.per_order} of {wanted.name} in one order."
            raise _refused(wanted, "per-order", says, own, allowed=wanted.per_order)
        self._require_guest(wanted, own, tickets)

    def _require_guest(self, wanted: PriceType, own: Sequence[WantedTicket], tickets: Sequence[WantedTicket]) -> None:
        if not wanted.companion_of:
            return
        guest_ids = {USUAL if each == self.types[0].type_id else each for each in wanted.companion_of}
        counts = Counter[str]()
        for ticket in tickets:
            counts[ticket.type_id] += ticket.quantity
        guests = sum(counts[type_id] for type_id in guest_ids)
        if counts[wanted.type_id] > guests:
            names = " or ".join(self.named(type_id) for type_id in sorted(guest_ids))
            says = f"{wanted.name} comes only with {names}, one for each: here are {guests} of them."
            raise _refused(wanted, "companion", says, own, allowed=guests)


# Which places a ticket gets first: of which trait, or of neither.
_SEATED: dict[str, tuple[Trait | None, ...]] = {
    "companion": ("companion", None, "wheelchair"), "guest": ("wheelchair", None, "companion"),
    "other": (None, "companion", "wheelchair"),
}  # fmt: skip


def _role(traits: frozenset[Trait]) -> Trait | None:
    return next((trait for trait in ACCESSIBLE if trait in traits), None)


def _is_for(wanted: PriceType, traits: frozenset[Trait]) -> bool:
    return not wanted.traits or not traits.isdisjoint(wanted.traits)


def _is_sold(wanted: PriceType, section_id: str, traits: frozenset[Trait]) -> bool:
    if wanted.sections and section_id not in wanted.sections:
        return False
    return _is_for(wanted, traits)


def _refused(
    wanted: PriceType, reason: str, says: str, tickets: Iterable[WantedTicket], *, allowed: int | None = None
) -> PriceTypeRefused:
    more = {} if allowed is None else {"allowed": allowed}
    named = [ticket.named for ticket in tickets]
    return PriceTypeRefused(says, reason=reason, type_id=wanted.type_id, tickets=named, **more)
