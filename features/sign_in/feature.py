"""Describes the feature."""

from shared.features import Feature

FEATURE = Feature(
    name="sign_in",
    what="Knows fans by the token of the seller's identity provider: one place, one pass, all orders on every device.",
    parts={
        "gateway": "features.sign_in.gateway:PART", "inventory": "features.sign_in.inventory:PART",
        "orders": "features.sign_in.orders:PART", "notifier": "features.sign_in.notifier:PART",
    },
)  # fmt: skip
