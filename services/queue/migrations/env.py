"""Alembic's environment of the queue's schema."""

from services.queue.tables import metadata
from shared.postgres.migrations import run_environment

run_environment(metadata)
