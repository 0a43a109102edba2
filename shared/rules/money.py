"""Formats amounts of money for people and programs, with the digits of their currency."""

from decimal import Decimal

from shared.rules.currencies import digits


def decimal_amount(minor: int, currency: str) -> str:
    """`123450` minor units of EUR as `1234.50`, for programs."""
    return f"{Decimal(minor).scaleb(-digits(currency)):f}"


def format_money(minor: int, currency: str) -> str:
    """`123450` minor units of EUR as `EUR 1,234.50`."""
    count = digits(currency)
    whole, rest = divmod(abs(minor), 10**count)
    sign = "-" if minor < 0 else ""
    return f"{currency} {sign}{whole:,}" + (f".{rest:0{count}d}" if count else "")
