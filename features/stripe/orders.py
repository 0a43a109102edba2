"""What orders knows of Stripe without its library: the settings, in which units it counts each currency, and what it
takes in one charge.

Sources: Stripe's pages "Currencies" and "Minimum and maximum charge amounts". Payouts of HUF and TWD go without minor
units, charges with them, so that nothing is to be done for these two.
"""

from fractions import Fraction
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, SecretStr
from pydantic_settings import BaseSettings, NoDecode

from shared.payment_provider import ChargeLimits
from shared.process.settings import listed
from shared.rules.currencies import digits
from shared.web.parts import Part

UNITS: Final = {"ISK": Fraction(100), "UGX": Fraction(100), "MGA": Fraction(1, 100)}  # Stripe's units of a minor unit
THREE_DIGITS, THREE_DIGITS_STEP = 3, 10  # the last of three digits must be 0
MOST: Final = 99_999_999  # in Stripe's units, by every method
MOST_OF: Final = {
    "INR": 999_999_999, "COP": 9_999_999_999, "HUF": 9_999_999_999, "JPY": 9_999_999_999, "LBP": 99_999_999_999,
    "IDR": 999_999_999_999,
}  # fmt: skip
LEAST_OF: Final = {  # in minor units; of other currencies it depends on the rate of exchange
    "AED": 200, "ARS": 50, "AUD": 50, "BRL": 50, "CAD": 50, "CHF": 50, "COP": 50, "CZK": 15_00, "DKK": 2_50, "EUR": 50,
    "GBP": 30, "HKD": 4_00, "HUF": 175_00, "IDR": 50, "ILS": 50, "INR": 50, "JPY": 50, "KRW": 50, "MXN": 10_00,
    "MYR": 2_00, "NOK": 3_00, "NZD": 50, "PHP": 50, "PLN": 2_00, "RON": 2_00, "RUB": 50, "SEK": 3_00, "SGD": 50,
    "THB": 10_00, "USD": 50, "ZAR": 50,
}  # fmt: skip


class StripeSettings(BaseSettings):
    """Needed where `ORDERS_PAYMENT_PROVIDERS` names Stripe."""

    stripe_secret_key: SecretStr | None = Field(None, description="Stripe's API key: sk_… or rk_…")
    stripe_webhook_secrets: Annotated[tuple[SecretStr, ...], NoDecode, BeforeValidator(listed)] = Field(
        (), description="Stripe's webhook signing secrets: whsec_…[,whsec_…]; two while one is replaced."
    )


PART = Part(settings=StripeSettings)


def stripe_limits(currency: str) -> ChargeLimits:
    """In minor units of ISO 4217."""
    unit = UNITS.get(currency, Fraction(1))
    step = THREE_DIGITS_STEP if digits(currency) == THREE_DIGITS else unit.denominator
    most = int(MOST_OF.get(currency, MOST) / unit)
    return ChargeLimits(LEAST_OF.get(currency, step), most, step)


def to_stripe(amount_minor: int, currency: str) -> int:
    """An amount within the limits in Stripe's units."""
    return int(amount_minor * UNITS.get(currency, Fraction(1)))


def from_stripe(amount: int, currency: str) -> int:
    return int(amount / UNITS.get(currency, Fraction(1)))
