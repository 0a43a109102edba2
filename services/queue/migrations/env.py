"""Alembic's environment of the queue's schema."""

from services.queue.tables import metadata
from shared.migrate import run_environment

run_environment(metadata)
