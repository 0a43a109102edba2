"""A request for the best places available: where they are looked for, for which price types, and what the script reads.

The script chooses in one step with the hold; which places a fan may have, and in which order sections are tried, is
decided here.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from services.inventory.layout.layout import Layout, PriceBlock
from services.inventory.layout.price_types import ACCESSIBLE, Fan
from services.inventory.problems import NoAccessiblePlaces
from shared.contracts.event_parts.price_types import USUAL, Trait, quota_id
from shared.errors.problems import SoldOut


class BestPlaces(NamedTuple):
    """How many places, of which price types as requests name them; in one section or anywhere, at most at this price
    each. Of them `wheelchair` places and `companions` next to them.
    """

    quantity: int
    types: Mapping[str, int]
    section_id: str | None = None
    max_price_minor: int | None = None
    split: bool = False
    wheelchair: int = 0
    companions: int = 0


def criteria(layout: Layout, wanted: BestPlaces, fan: Fan, pools: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """What the hold script reads. `pools` are those that the fan may buy from, by section. Raises `SoldOut`,
    `UnknownSection`, `UnknownPriceType`, `PriceTypeRefused` or `NoAccessiblePlaces`.
    """
    types = _stored_types(layout, wanted, fan)
    accessible = _accessible(layout, wanted, types) if wanted.wheelchair else None
    blocks = _price_blocks(layout, wanted, types, ACCESSIBLE if accessible else ())
    if not blocks:
        raise SoldOut("No section has this price or a lower one. Raise max_price_minor.")
    places: list[tuple[Any, ...]] = []
    for block in blocks:
        places += [*((pool,) for pool in pools.get(block.section_id, ())), block.for_script]
    return {
        "quantity": wanted.quantity, "price_blocks": places, "split": wanted.split, "tidy": layout.avoid_single_seats,
        "avoid": layout.offers.accessible(fan) if accessible else layout.rounds(fan, wanted.section_id),
        **({"accessible": accessible} if accessible else {}),
        "types": "".join(f";{quota_id(type_id)}*{n}" for type_id, n in types.items()),
    }  # fmt: skip


def _stored_types(layout: Layout, wanted: BestPlaces, fan: Fan) -> dict[str, int]:
    """All but the usual one, in the order of a selection's text."""
    types = Counter[str]()
    for type_id, n in wanted.types.items():
        types[layout.types.stored_id(type_id)] += n
    types[USUAL] = wanted.quantity - sum(n for type_id, n in types.items() if type_id)
    layout.types.require_anywhere(types, fan)
    return {type_id: n for type_id, n in sorted(types.items()) if type_id}


def _price_blocks(
    layout: Layout, wanted: BestPlaces, types: Mapping[str, int], traits: Sequence[Trait]
) -> list[PriceBlock]:
    """Where these types are sold, highest price first, then in the order of the event file; for places with traits
    those whose section has places of the first.
    """
    sections = [layout.section(wanted.section_id)] if wanted.section_id else layout.sections.values()
    if traits:
        sections = [section for section in sections if traits[0] in section.traits]
        if not sections:
            raise NoAccessiblePlaces.left(0, 0)
    if types:
        sections = [
            section for section in sections if types.keys() <= _sold_all_over(layout, section.section_id, traits)
        ]
        if not sections:
            raise layout.types.nowhere(sorted(types))
    blocks = (block for section in sections for block in section.price_blocks)
    dearest = sorted(blocks, key=lambda block: -block.price_minor)
    most = wanted.max_price_minor
    return [block for block in dearest if most is None or block.price_minor <= most]


def _sold_all_over(layout: Layout, section_id: str, traits: Iterable[Trait]) -> set[str]:
    """The price types that are sold at every place of a section, or else at those with these traits."""
    section = layout.sections[section_id]
    traits = section.traits if section.kind == "ga" else traits
    return {each.type_id for each in layout.types.sold_in(section_id, traits)}


def _accessible(layout: Layout, wanted: BestPlaces, types: Mapping[str, int]) -> dict[str, Any]:
    """What the script reads about wheelchair and companion places."""
    numbers = {"wheelchair": wanted.wheelchair, "companions": wanted.companions}
    strict = layout.types.require_seated(types, wanted.quantity, **numbers)
    offers = layout.offers
    places = {"wheelchair_places": offers.wheelchair_places, "companion_places": offers.companion_places}
    return {**numbers, "strict": strict, **places}
