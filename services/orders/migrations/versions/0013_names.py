"""Names on tickets: which names an event asks for, and how many an order's buyer changed."""

from pathlib import Path

from alembic import op

from shared.postgres.migrations import run_script

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    run_script(Path(__file__).with_suffix(".sql").read_text())


def downgrade() -> None:
    op.execute("ALTER TABLE orders.event DROP COLUMN names, DROP COLUMN names_until")
    op.execute('ALTER TABLE orders."order" DROP COLUMN name_changes')
