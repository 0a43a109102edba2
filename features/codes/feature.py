"""What the feature adds, and where."""

from shared.features import CliCommand, Feature

FEATURE = Feature(
    name="codes",
    what="Access codes: each lets a number of fans join a lane, for a presale or for guests.",
    parts={"queue": "features.codes.queue.access_codes:PART", "gateway": "features.codes.gateway:PART"},
    commands=[
        CliCommand(
            "codes", "features.codes.cli:app", "Operate a sale",
            "Create, list and revoke the access codes of a lane: for a presale, for guests.",
        )
    ],
)  # fmt: skip
