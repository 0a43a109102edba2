"""Alembic's environment of the console's schema."""

from features.console.tables import metadata
from shared.postgres.migrations import run_environment

run_environment(metadata)
