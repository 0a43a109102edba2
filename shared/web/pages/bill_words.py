"""How a discount, fee or tax is called on pages, papers and in mail."""

from decimal import Decimal

from shared.words.words import Words


def adjustment_name(text: Words, *, kind: str, name: str, percent: str | None) -> str:
    """Its name with its percentage, such as VAT (19 %); of a discount the promo code."""
    share = f" ({text('percent', n=f'{Decimal(percent).normalize():f}')})" if percent else ""
    return (text("bill_promo", name=name) if kind == "discount" else name) + share
