"""One-time links that were used."""

from pathlib import Path

from alembic import op

from shared.postgres.migrations import run_script

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    run_script(Path(__file__).with_suffix(".sql").read_text())


def downgrade() -> None:
    op.execute("DROP TABLE console.used_link")
