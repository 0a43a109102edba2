"""A place is ended by one write: its calls are over with it, and are found by when they were made."""

from pathlib import Path

from alembic import op

from shared.postgres.migrations import run_script

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    run_script(Path(__file__).with_suffix(".sql").read_text())


def downgrade() -> None:
    op.execute(
        "CREATE INDEX ix_admission_open ON queue.admission (event_id, epoch, lane, join_seq) "
        "WHERE state IN ('called', 'claimed')"
    )
    op.execute("DROP INDEX queue.ix_admission_called")
    op.execute("DROP INDEX queue.ix_place_bought")
