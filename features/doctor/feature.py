"""Describes the feature."""

from shared.features import CliCommand, Feature
from shared.routes import SERVICES

FEATURE = Feature(
    name="doctor",
    what="Checks an installation: each process itself, the events on sale, and the operator's machine.",
    parts={service: f"features.doctor.{service}:PART" for service in SERVICES},
    commands=(
        CliCommand(
            "doctor", "features.doctor.cli:doctor", "Operate a sale",
            "Check an installation: databases, clocks, keys, limits, events, disk, certificate, Prometheus' targets.",
        ),
    ),
)  # fmt: skip
