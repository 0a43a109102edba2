"""Requests for a second person's approval."""

from pathlib import Path

from alembic import op

from shared.postgres.migrations import run_script

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    run_script(Path(__file__).with_suffix(".sql").read_text())


def downgrade() -> None:
    op.execute("DROP TABLE console.approval")
