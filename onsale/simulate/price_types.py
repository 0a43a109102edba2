"""The price types that a simulated fan wants: mostly the usual one, at accessible places the one that is only sold
there, companions with their guests. What was refused or is sold out is not wanted again.
"""

import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from onsale.client import Problem
from onsale.client.fan_documents import EventDetails, GaTickets, PriceTypeDetails, TypeAvailability

SHARE_USUAL, SHARE_FITTING, SHARE_COMPANION, SHARE_WITH, WEIGHT_SCARCE = 0.5, 0.9, 0.5, 0.7, 8
QUOTA = "~"  # begins the name of a type's number in all among what is left


class TypeChoices:
    """One fan's, who came by this lane and knows this code or none. Without price types every place is wanted as it
    is, and nothing is drawn.
    """

    def __init__(self, event: EventDetails, *, lane: int, code: str | None, rng: random.Random) -> None:
        types = event.get("price_types", [])
        self._usual, self._rng = types[0]["type_id"] if types else None, rng
        self._types: dict[str, PriceTypeDetails] = {
            each["type_id"]: each for each in types[1:] if _is_for(each, lane=lane, code=code)
        }
        self._scarce = frozenset[str]()
        self._prices = {section["section_id"]: section.get("prices", {}) for section in event["sections"]}

    @property
    def any(self) -> bool:
        """Whether this fan may choose a price type."""
        return bool(self._types)

    def of_ga(self, section_id: str, quantity: int) -> list[GaTickets]:
        """So many tickets of a section of general admission, by type."""
        return self.as_ga(section_id, self.choose([self._prices[section_id]] * quantity))

    def as_ga(self, section_id: str, chosen: Iterable[str | None]) -> list[GaTickets]:
        """Tickets of these types as a request names them; the usual one needs no name."""
        return [
            {"section_id": section_id, "quantity": n, "type_id": type_id}
            if type_id is not None
            else {"section_id": section_id, "quantity": n}
            for type_id, n in Counter(chosen).items()
        ]

    def unseen(self, section_id: str | None, quantity: int) -> dict[str, int]:
        """The types of so many tickets whose places the fan leaves to the seller, in a section or anywhere."""
        sold = [
            type_id
            for type_id, each in self._types.items()
            if not each.get("traits")
            and (not each.get("sections") if section_id is None else type_id in self._prices[section_id])
        ]
        return dict(Counter(each for each in self.choose([sold] * quantity) if each is not None))

    def accessible(self) -> dict[str, int]:
        """The types of one wheelchair place and mostly of a companion with it; empty if there is no such type."""
        guests = [each for each in self._types if "wheelchair" in self._types[each].get("traits", ())]
        if not guests:
            return {}
        guest = self._rng.choice(guests)
        others = [each for each in self._companions(self._types) if self._guests(each, [guest])]
        return {guest: 1, self._rng.choice(others): 1} if others and self._rng.random() < SHARE_WITH else {guest: 1}

    def at_unseen(self, section_id: str) -> list[str]:
        """The types that are sold at every place of a section."""
        return [
            each for each in self._prices[section_id] if each in self._types and not self._types[each].get("traits")
        ]

    def choose(self, places: Sequence[Collection[str]]) -> list[str | None]:
        """A type for each place, of those that are sold there; None is the usual one."""
        if not self._types:
            return [None for _ in places]
        chosen = [self._one_of(sold) for sold in places]
        for n, sold in enumerate(places):
            for type_id in self._companions(sold):
                others = [*chosen[:n], *chosen[n + 1 :]]
                if others.count(type_id) < self._guests(type_id, others) and self._rng.random() < SHARE_COMPANION:
                    chosen[n] = type_id
        return self._within_rules(chosen)

    def see(self, left: Iterable[TypeAvailability]) -> None:
        """How many are left of the types of which there is a number in all: these are wanted most."""
        counts = {each["type_id"]: each["available"] for each in left}
        self._scarce = frozenset(counts)
        for type_id in [each for each, available in counts.items() if not available]:
            self._types.pop(type_id, None)

    def heed(self, problem: Problem) -> None:
        """What was refused is not wanted again."""
        if (refused := problem.members.get("type_id")) is not None:
            self._types.pop(str(refused), None)
        available = problem.members.get("available")
        for named in available if isinstance(available, Mapping) else ():
            self._types.pop(str(named).removeprefix(QUOTA), None)

    def _one_of(self, sold: Collection[str]) -> str | None:
        companions = self._companions(sold)
        wanted = [type_id for type_id in self._types if type_id in sold and type_id not in companions]
        fitting = [type_id for type_id in wanted if self._types[type_id].get("traits")]
        if fitting and self._rng.random() < SHARE_FITTING:
            return self._rng.choice(fitting)
        if not wanted or self._rng.random() < SHARE_USUAL:
            return None
        return self._rng.choices(wanted, [WEIGHT_SCARCE if each in self._scarce else 1 for each in wanted])[0]

    def _companions(self, sold: Collection[str]) -> list[str]:
        return [each for each in self._types if each in sold and self._types[each].get("companion_of")]

    def _guests(self, companion: str, chosen: Sequence[str | None]) -> int:
        """How many tickets there are that this companion may come with."""
        guests = {None if each == self._usual else each for each in self._types[companion].get("companion_of", ())}
        return sum(each in guests for each in chosen)

    def _within_rules(self, chosen: list[str | None]) -> list[str | None]:
        """The same, where what is too many of a type is of the usual one."""
        for type_id, each in self._types.items():
            _cut(chosen, type_id, each.get("per_order") or len(chosen))
        for type_id in self._companions(self._types):
            _cut(chosen, type_id, self._guests(type_id, chosen))
        return chosen


def _cut(chosen: list[str | None], type_id: str, most: int) -> None:
    """Leaves so many of a type."""
    for n in [n for n, each in enumerate(chosen) if each == type_id][most:]:
        chosen[n] = None


def _is_for(each: PriceTypeDetails, *, lane: int, code: str | None) -> bool:
    lanes = each.get("lanes")
    return (not lanes or lane in lanes) and (code is not None or not each.get("code_required"))
