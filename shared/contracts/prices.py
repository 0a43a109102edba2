"""Fees and taxes of an order, as the event file gives them.

Amounts are in minor units of the event's currency; percentages are decimals of at most three places, never floats.
A fee or a tax may be for tickets of some price types only.
"""

from collections.abc import Collection
from decimal import Decimal
from operator import not_
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from shared.contracts.event_parts.price_types import TYPES_MAX, TypeId
from shared.contracts.fields import Body

EXTRA_MINOR_MAX = 100_000_000
EXTRAS_MAX = 5
PRICES_MAX = 100
PRICE_OF_TYPE = r"^[0-9]{1,9}:[a-z][a-z0-9_]{0,23}$"  # such as 5000:child

ExtraName = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$", min_length=1, max_length=60)]
Percent = Annotated[Decimal, Field(gt=0, le=100, decimal_places=3)]
AmountMinor = Annotated[int, Field(strict=True, ge=1, le=EXTRA_MINOR_MAX)]
OnlyTypes = Annotated[
    list[TypeId],
    Field(max_length=TYPES_MAX, exclude_if=not_, description="Only for tickets of these price types. Default: all."),
]


class AmountOrPercent(Body):
    """Either an amount in minor units or a percentage."""

    amount_minor: AmountMinor | None = None
    percent: Percent | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if (self.amount_minor is None) == (self.percent is None):
            raise ValueError("give either amount_minor or percent")
        return self


class Fee(AmountOrPercent):
    """A fee on top of the tickets; a percentage is of their price after the discount.

    A free ticket carries no fee per ticket, a free order no fee per order. With `types`, only tickets of these price
    types count for it and bear it.
    """

    name: ExtraName
    per: Literal["ticket", "order"] = "ticket"
    types: OnlyTypes = []  # noqa: RUF012 - each has its own


class Tax(Body):
    """A tax on tickets and fees. `included`: their prices contain it and it is only shown; otherwise it is added."""

    name: ExtraName
    percent: Percent
    included: bool = True
    types: OnlyTypes = []  # noqa: RUF012


class PriceRules(Body):
    """The fees and taxes of one event."""

    fees: list[Fee] = Field(default_factory=list, max_length=EXTRAS_MAX)
    taxes: list[Tax] = Field(default_factory=list, max_length=EXTRAS_MAX)

    def require_types(self, type_ids: Collection[str]) -> None:
        """Raises `ValueError` for a fee or a tax that is for a price type which is none of these."""
        named = {f"fees.{n}": fee.types for n, fee in enumerate(self.fees)}
        named |= {f"taxes.{n}": tax.types for n, tax in enumerate(self.taxes)}
        for field, types in named.items():
            if unknown := sorted(set(types) - set(type_ids)):
                raise ValueError(f"{field}.types: there is no price type {unknown[0]}")


class PricesAnswer(PriceRules):
    """An event's fees and taxes, and the prices asked for with all of them, in minor units."""

    all_in: dict[int, int] = Field(default_factory=dict, description="By price: one ticket with everything in it.")
    all_in_by_type: dict[str, dict[int, int]] = Field(
        default_factory=dict, exclude_if=not_, description="The same by price type, where one was named."
    )
    together_minor: int | None = Field(None, description="One order of all lines that were asked about.")
