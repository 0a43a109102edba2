"""Describes the feature."""

from shared.features import Feature

FEATURE = Feature(
    name="mail",
    what="Sends buyers a mail about their order, and reminders about a hold to those who want them.",
    parts={"orders": "features.mail.orders:PART"},
)
