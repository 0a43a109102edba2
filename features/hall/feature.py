"""Describes the feature."""

from shared.features import CliCommand, Feature

FEATURE = Feature(
    name="hall",
    what="Draws the hall with its seats as they are taken, and events in the seller's colours, with pictures.",
    parts={"inventory": "features.hall.inventory.api:PART", "notifier": "features.hall.notifier:PART"},
    commands=(
        CliCommand("map", "features.hall.cli.command:app", "Operate a sale", "Import the map of a hall, and draw it."),
    ),
    file_parts={"event": "features.hall.rules:HallFields"},
)
