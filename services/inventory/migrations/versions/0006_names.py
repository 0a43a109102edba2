"""Which names an event asks for, and until when buyers may change them."""

from pathlib import Path

from alembic import op

from shared.postgres.migrations import run_script

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    run_script(Path(__file__).with_suffix(".sql").read_text())


def downgrade() -> None:
    op.execute("ALTER TABLE inventory.event DROP COLUMN names, DROP COLUMN names_until")
