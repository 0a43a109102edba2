"""Promo codes with blanks, as they are shown."""

from pathlib import Path

from alembic import op

from shared.postgres.migrations import run_script

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    run_script(Path(__file__).with_suffix(".sql").read_text())


def downgrade() -> None:
    op.execute("ALTER TABLE orders.promo_code DROP COLUMN written")
