"""Mail that cannot come is said, addresses are corrected, and unpaid mails to one address are counted."""

from pathlib import Path

from alembic import op

from shared.postgres.migrations import run_script

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    run_script(Path(__file__).with_suffix(".sql").read_text())


def downgrade() -> None:
    op.execute('ALTER TABLE orders."order" DROP COLUMN unmailed_at, DROP COLUMN address_changes')
    op.execute("ALTER TABLE orders.mail DROP COLUMN budget")
    op.execute("DROP INDEX orders.ix_mail_unsent")
    op.execute("DROP TABLE orders.mail_recipient")
