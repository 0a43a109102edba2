"""Price types on pages without scripts: what is offered, at which prices, and why one was refused, as
`web/fans/types/types.js` has it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from features.pages.gateway.event_page import priced_places
from features.pages.gateway.stock import EventStock
from shared.contracts.catalogue import PriceLevelDetails, PriceTypeDetails, SectionDetails
from shared.contracts.event_parts.price_types import Trait
from shared.words.words import Words

REASONS = {
    "place": "refused_place", "lane": "refused_lane", "code": "refused_code", "per-order": "refused_per_order",
    "companion": "refused_companion",
}  # fmt: skip


class TypeRow(NamedTuple):
    """A type with a number of tickets to choose: the field's name, and the most of it that may be chosen."""

    field: str
    name: str
    price: str
    note: str
    most: int


class TicketChoice(NamedTuple):
    """One ticket of a hold with the types that are sold at its place: ids with names and prices."""

    field: str
    place: str
    type_id: str
    note: str
    options: list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class EventTypes:
    """The price types of an event for a fan of a lane."""

    text: Words
    stock: EventStock
    lane: int

    @property
    def _types(self) -> list[PriceTypeDetails]:
        return self.stock.event.price_types

    @property
    def _offered(self) -> list[PriceTypeDetails]:
        return [each for each in self._types if not each.lanes or self.lane in each.lanes]

    @property
    def _left(self) -> dict[str, int]:
        return {each.type_id: each.available for each in self.stock.availability.types}

    @property
    def takes_codes(self) -> bool:
        return any(each.code_required for each in self._offered)

    def _named(self, each: PriceTypeDetails) -> str:
        return self.text("type_with_code", type=each.name) if each.code_required else each.name

    def names(self, type_ids: Iterable[str]) -> str:
        """The names of types, in a list."""
        known = {each.type_id: each.name for each in self._types}
        return self.text("list_comma").join(known.get(each, each) for each in type_ids)

    def opened(self) -> str:
        """What a code opens."""
        return self.text("type_code_opens", types=self.names(t.type_id for t in self._offered if t.code_required))

    def note(self, each: PriceTypeDetails) -> str:
        """What a fan has to know of a type before choosing it."""
        text, left = self.text, self._left.get(each.type_id)
        notes = [
            text("type_companion", types=self.names(each.companion_of)) if each.companion_of else "",
            text("ticket_proof", proof=each.proof) if each.proof else "",
            text("type_per_order", n=each.per_order) if each.per_order else "",
            "" if left is None else text("type_left", n=left) if left else text("type_gone"),
        ]  # fmt: skip
        return " · ".join(note for note in notes if note)

    def price(self, type_id: str, minor: int) -> str:
        """One ticket of a type at this price, with all fees and taxes if they are known."""
        if type_id == self._types[0].type_id:
            return self.stock.price(self.text, minor)
        known = self.stock.all_in.all_in_by_type.get(type_id, {}) if self.stock.all_in else {}
        if minor in known:
            return self.text.money(known[minor], self.stock.event.currency)
        return self.text("price_plus_fees", price=self.text.money(minor, self.stock.event.currency))

    def _row(self, field: str, each: PriceTypeDetails, price: str, most: int) -> TypeRow:
        most = min(most, each.per_order or most, self._left.get(each.type_id, most))
        return TypeRow(field, self._named(each), price, self.note(each), most)

    def _at(
        self, field: str, each: PriceTypeDetails, places: Iterable[SectionDetails | PriceLevelDetails]
    ) -> TypeRow | None:
        """A type at its lowest price at these places; None if it is not sold there."""
        usual, limit = self._types[0].type_id, self.stock.event.limits.tickets_per_order
        prices = (at.price_minor if each.type_id == usual else at.prices.get(each.type_id) for at in places)
        minors = {minor for minor in prices if minor is not None}
        if not minors:
            return None
        price = self.price(each.type_id, min(minors))
        return self._row(field, each, self.text("price_from", price=price) if len(minors) > 1 else price, limit)

    def anywhere(self) -> list[TypeRow]:
        """The types that the best available places may be of, with their lowest prices."""
        everywhere = list(priced_places(self.stock.event))
        found = (self._at(f"type.{each.type_id}", each, everywhere) for each in self._offered if not each.traits)
        return [row for row in found if row]

    def for_trait(self, trait: Trait) -> PriceTypeDetails | None:
        """The price type for places with this trait, or a companion's that comes with that of wheelchair places; None
        if such places cost what others do.
        """
        offered = [each for each in self._offered if not each.code_required]
        own = next((each for each in offered if trait in each.traits), None)
        if own or trait != "companion":
            return own
        guest = (self.for_trait("wheelchair") or self._types[0]).type_id
        sections = [section for section in self.stock.event.sections if "wheelchair" in section.traits]
        for each in offered:
            if not each.traits and guest in each.companion_of and all(each.type_id in s.prices for s in sections):
                return each
        return None

    def at_trait(self, field: str, trait: Trait) -> tuple[str, TypeRow] | None:
        """The id of this type, and its row."""
        found, places = self.for_trait(trait), list[SectionDetails | PriceLevelDetails]()
        for section in self.stock.event.sections:
            places += [section, *section.price_levels] if trait in section.traits else []
        row = self._at(field, found, places) if found else None
        return (found.type_id, row) if found and row else None

    def of_section(self, section: SectionDetails, most: int) -> list[TypeRow]:
        """The types that are sold in a section of general admission."""
        usual, prices = self._types[0].type_id, section.prices
        rows = []
        for each in self._offered:
            minor = section.price_minor if each.type_id == usual else prices.get(each.type_id)
            if minor is not None:
                field = f"ga.{section.section_id}" + ("" if each.type_id == usual else f"~{each.type_id}")
                rows.append(self._row(field, each, self.price(each.type_id, minor), most))
        return rows

    def choice(self, place: str, field: str, type_id: str, prices: Mapping[str, int]) -> TicketChoice:
        """One ticket that is held, of the type with this stored id, at a place with these prices."""
        held = type_id or self._types[0].type_id
        by_id = {each.type_id: each for each in self._types}
        options = [
            (each.type_id, self.text("type_price", type=self._named(each), price=self.price(each.type_id, minor)))
            for each in self._types
            if (each in self._offered or each.type_id == held) and (minor := prices.get(each.type_id)) is not None
        ]
        return TicketChoice(field, place, held, self.note(by_id[held]) if held in by_id else "", options)

    def refusal(self, query: Mapping[str, str]) -> str:
        """Why a price type was refused, by the fields of the page's address, which nobody has checked; empty if they
        say nothing of a type of this event.
        """
        each = next((one for one in self._types if one.type_id == query.get("type")), None)
        if each is None:
            return ""
        number = query.get("n", "")
        n = int(number) if number.isascii() and number.isdecimal() and len(number) < 8 else 0
        if query.get("problem") == "sold-out":
            return self.text("refused_left", n=n, type=each.name) if n else self.text("refused_gone", type=each.name)
        key = REASONS.get(query.get("reason", ""))
        if key is None:
            return ""
        if key == "refused_companion":
            return self.text(key, n=n, type=each.name, types=self.names(each.companion_of))
        return self.text(key, n=n, type=each.name) if key == "refused_per_order" else self.text(key, type=each.name)
