"""Describes the feature."""

from shared.features import CliCommand, Feature

FEATURE = Feature(
    name="promo",
    what="Promo codes: a percentage or an amount off the tickets, within limits in all and of one customer.",
    parts={"orders": "features.promo.orders:PART"},
    commands=(
        CliCommand(
            "promo", "features.promo.cli:app", "Operate a sale",
            "Create, stop and list promo codes, and list the orders that used them.",
        ),
    ),
)  # fmt: skip
