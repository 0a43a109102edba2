"""Promo codes and their uses as operators read and write them. Percentages are decimals as text, amounts integers of
minor units.
"""

from typing import Self

from pydantic import AwareDatetime, Field, model_validator

from shared.contracts.admin.orders import Answered, Time
from shared.contracts.fields import Page, PlainText, SectionId
from shared.contracts.prices import AmountOrPercent

USES_MAX = 100_000


class PromoCodeRequest(AmountOrPercent):
    """A promo code: what it takes off, how often, when, and off which tickets; no section means any."""

    uses_max: int | None = Field(None, ge=1, le=USES_MAX)
    customer_uses_max: int | None = Field(None, ge=1, le=USES_MAX)
    valid_from: AwareDatetime | None = None
    valid_until: AwareDatetime | None = None
    section_ids: list[SectionId] = Field(default_factory=list, max_length=500)
    tickets_min: int = Field(1, ge=1, le=100, description="At least this many tickets of these sections.")
    reason: PlainText | None = None

    @model_validator(mode="after")
    def _ends_after_it_begins(self) -> Self:
        if self.valid_from and self.valid_until and self.valid_until <= self.valid_from:
            raise ValueError("valid_until must be after valid_from")
        return self


class PromoCodeAnswer(Answered):
    """A promo code and how many orders use it now. `percent` is a decimal as text; `stopped_at`: deactivated then."""

    code: str
    percent: str | None
    amount_minor: int | None
    uses_max: int | None
    customer_uses_max: int | None
    valid_from: Time | None
    valid_until: Time | None
    section_ids: list[str]
    tickets_min: int
    stopped_at: Time | None
    uses: int


class PromoCodeChanged(PromoCodeAnswer):
    """The promo code as it is now, and whether the request changed it."""

    changed: bool


class PromoCodePage(Page):
    """Promo codes in alphabetical order."""

    promo_codes: list[PromoCodeAnswer]


class PromoCodeUse(Answered):
    """An order that used a promo code; it `counts` against the limits unless it ended unpaid."""

    reference: str
    status: str
    counts: bool
    at: Time


class PromoCodeUsePage(Page):
    """Uses of a promo code, newest first."""

    uses: list[PromoCodeUse]
