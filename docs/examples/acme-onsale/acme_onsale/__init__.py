"""Acme Pay as a payment provider of Onsale."""

from onsale.extend import Feature, PaymentProvider

FEATURE = Feature(
    name="acme",
    what="Takes payments by Acme Pay.",
    parts={"orders": "acme_onsale.provider:ORDERS"},
    providers=[PaymentProvider("acme", "acme_onsale.provider:open_provider")],
)
