"""How many places with traits there are, by section and in all. A place with two traits is counted for both."""

from collections import Counter

from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.admin.inventory import PlacesByTrait, TraitCounts
from shared.contracts.event_parts.price_types import Trait
from shared.postgres.engine import statement

COUNT_TRAITS = statement(__package__, "count_traits")


async def count_traits(connection: AsyncConnection, event_id: str) -> PlacesByTrait:
    """Read in one statement."""
    sections: dict[str, dict[Trait, TraitCounts]] = {}
    total: dict[Trait, Counter[str]] = {}
    for row in (await connection.execute(COUNT_TRAITS, {"event_id": event_id})).mappings():
        counts = {name: row[name] for name in TraitCounts.model_fields}
        sections.setdefault(row["section_id"], {})[row["trait"]] = TraitCounts(**counts)
        total.setdefault(row["trait"], Counter()).update(counts)
    return PlacesByTrait(sections=sections, total={trait: TraitCounts(**counts) for trait, counts in total.items()})
