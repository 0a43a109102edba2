"""The schema `console`: samples of figures."""

from pathlib import Path

from shared.postgres.migrations import drop_tables, run_script

revision = "0001"
down_revision = None


def upgrade() -> None:
    run_script(Path(__file__).with_suffix(".sql").read_text())


def downgrade() -> None:
    drop_tables("console")
