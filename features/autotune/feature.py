"""Describes the feature."""

from shared.features import CliCommand, Feature

FEATURE = Feature(
    name="autotune",
    what="Moves the rate of a waiting room within bounds, and plans when a line drains at a given rate.",
    parts={"queue": "features.autotune.queue.autotune:PART"},
    file_parts={"pace": "features.autotune.rules:AutotunePace"},
    commands=(
        CliCommand(
            "room plan", "features.autotune.cli:plan", "Operate a sale",
            "Estimate when the present line will be drained and everything sold with these values. Changes nothing.",
        ),
    ),
)  # fmt: skip
