"""The console, as the registry knows it."""

from shared.features import CliCommand, Feature

FEATURE = Feature(
    name="console",
    what="The operators' screen of a running sale, with rehearsals and the approvals of a second person.",
    services={"console": "features.console"},
    commands=(
        CliCommand("rehearse", "features.console.cli.rehearse:rehearse", "Operate a sale",
                   "Rehearse a sale: send simulated fans through a copy of the event, then close the copy."),
        CliCommand("watch", "features.console.cli.watch:watch", "Operate a sale",
                   "Watch a sale live: the same figures as in the console, once a second. Ctrl-C ends it."),
    ),
)  # fmt: skip
