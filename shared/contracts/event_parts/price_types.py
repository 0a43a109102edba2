"""Price types: who pays another price for the same place, such as a child, a concession or a companion.

The first type of an event is the usual one: it has the place's own price and no rule, and who chooses nothing buys it.
A type is a price and not a stock of its own; only how many there are of it in all is stock (`quota_id`).
"""

from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from shared.contracts.fields import Body, NewCode, PlainText, SectionId
from shared.rules.currencies import step_of

TYPE_ID = "^[a-z][a-z0-9_]{0,23}$"
TYPES_MAX, CODES_MAX, PRICE_MINOR_MAX, QUOTA_MAX = 20, 500, 100_000_000, 1_000_000
USUAL = ""  # how the usual type is stored, whatever it is called
QUOTA = "~"  # begins the id of what is counted beside the places
Trait = Literal["wheelchair", "companion", "restricted_view", "easy_access"]
TypeId = Annotated[str, StringConstraints(pattern=TYPE_ID)]
PriceMinor = Annotated[int, Field(strict=True, ge=0, le=PRICE_MINOR_MAX)]
TypePrices = Annotated[dict[TypeId, PriceMinor], Field(max_length=TYPES_MAX)]


class PriceType(Body):
    """A price type. Its price is what the section or price level says, else its own, else a part of the place's."""

    type_id: TypeId
    name: PlainText = Field(max_length=60)
    price_minor: PriceMinor | None = Field(None, description="The same at every place. Default: as `percent` says.")
    percent: Decimal | None = Field(
        None, ge=0, le=100, decimal_places=3, description="Of the place's price. Default: all of it."
    )
    fee_minor: PriceMinor | None = Field(None, description="Default: the fee of the place; none if the price is 0.")
    per_order: int | None = Field(None, ge=1, le=100, description="How many in one order at most.")
    quota: int | None = Field(None, ge=0, le=QUOTA_MAX, description="How many in all at most.")
    lanes: list[Annotated[int, Field(ge=0, le=15)]] = Field(
        default_factory=list, max_length=16, description="Only for fans who came by one of these lanes."
    )
    codes: list[NewCode] = Field(
        default_factory=list, max_length=CODES_MAX, description="Only for fans who name one of these codes."
    )
    proof: PlainText | None = Field(None, max_length=120, description="What is shown at the door, such as a card.")
    companion_of: list[TypeId] = Field(
        default_factory=list,
        max_length=TYPES_MAX,
        description="Comes only with a guest: at most one for each ticket of these types in the same order.",
    )
    sections: list[SectionId] = Field(default_factory=list, max_length=500, description="Only in these sections.")
    traits: list[Trait] = Field(
        default_factory=list, max_length=4, description="Only at places that have one of these traits."
    )

    @model_validator(mode="after")
    def _one_price(self) -> Self:
        if self.price_minor is not None and self.percent is not None:
            raise ValueError(f"price type {self.type_id}: give price_minor or percent")
        if self.type_id in self.companion_of:
            raise ValueError(f"price type {self.type_id}: a companion comes with a ticket of another type")
        return self

    def all_in_minor(self, price_minor: int, fee_minor: int, currency: str, own: Mapping[str, int]) -> int:
        """What it costs at a place of this price and fee, whose section or price level has its `own` prices by type;
        the fee is included.
        """
        mine, step = own.get(self.type_id, self.price_minor), step_of(currency, price_minor)
        if mine is None:
            part = Decimal(price_minor) * (100 if self.percent is None else self.percent) / (100 * step)
            mine = int(part.quantize(Decimal(1), ROUND_HALF_UP)) * step
        if self.fee_minor is not None:
            return mine + self.fee_minor
        return mine + (fee_minor if mine else 0)


def quota_id(type_id: str) -> str:
    """How a type is counted in all: as a section without places, which no section can be called like."""
    return QUOTA + type_id


def require_sound(types: Sequence[PriceType], section_ids: Sequence[str]) -> None:
    """Raises `ValueError` for types that cannot be sold."""
    ids = [each.type_id for each in types]
    if len(set(ids)) != len(ids):
        raise ValueError("every type_id must be unique")
    if not types:
        return
    first = types[0]
    if first != PriceType(type_id=first.type_id, name=first.name):
        raise ValueError(
            f"price type {first.type_id}: the first is the usual one, with the prices of the places and no rule; "
            "give it a name alone, or put another first"
        )
    for each in types:
        if unknown := sorted(set(each.companion_of) - set(ids)):
            raise ValueError(f"price type {each.type_id}: there is no type {unknown[0]} to come with")
        if unknown := sorted(set(each.sections) - set(section_ids)):
            raise ValueError(f"price type {each.type_id}: there is no section {unknown[0]}")
    by_id = {each.type_id: each for each in types}
    for each in types:
        if each.companion_of and all(by_id[guest].companion_of for guest in each.companion_of):
            raise ValueError(f"price type {each.type_id}: a companion cannot be the guest of another companion")
