"""Describes the feature."""

from shared.features import Feature

FEATURE = Feature(
    name="papers",
    what="Prints tickets and receipts as PDF, and writes shows as calendar files.",
    parts={"orders": "features.papers.orders.api:PART"},
)
