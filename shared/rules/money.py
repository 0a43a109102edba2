"""Formats amounts of money for people; the number of minor digits depends on the currency (ISO 4217)."""

from decimal import Decimal
from typing import Final

NO_MINOR_DIGITS: Final = frozenset(
    "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF".split()  # noqa: SIM905 - read as a list
)
THREE_MINOR_DIGITS: Final = frozenset({"BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"})


def minor_digits(currency: str) -> int:
    """How many digits of an amount are minor units."""
    return 0 if currency in NO_MINOR_DIGITS else 3 if currency in THREE_MINOR_DIGITS else 2


def decimal_amount(minor: int, currency: str) -> str:
    """`123450` minor units of EUR as `1234.50`, for programs."""
    return f"{Decimal(minor).scaleb(-minor_digits(currency)):f}"


def format_money(minor: int, currency: str) -> str:
    """`123450` minor units of EUR as `EUR 1,234.50`."""
    digits = minor_digits(currency)
    whole, rest = divmod(abs(minor), 10**digits)
    sign = "-" if minor < 0 else ""
    return f"{currency} {sign}{whole:,}" + (f".{rest:0{digits}d}" if digits else "")
