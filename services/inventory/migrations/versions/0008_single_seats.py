"""Whether a choice of seats may leave one alone."""

from pathlib import Path

from alembic import op

from shared.postgres.migrations import run_script

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    run_script(Path(__file__).with_suffix(".sql").read_text())


def downgrade() -> None:
    op.execute("ALTER TABLE inventory.event DROP COLUMN single_seats")
