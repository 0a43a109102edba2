"""Describes the feature."""

from shared.features import CliCommand, Feature

FEATURE = Feature(
    name="webhooks",
    what="Tells systems of your own about orders, by signed messages that are retried for days.",
    parts={"orders": "features.webhooks.orders:PART"},
    commands=(
        CliCommand(
            "webhooks", "features.webhooks.cli:app", "Operate a sale",
            "Manage webhook endpoints: signed messages about orders, retried for days.",
        ),
    ),
)  # fmt: skip
