"""Disputes of charges: what the provider reports of them, and their money in the ledger."""

from pathlib import Path

from alembic import op

from shared.postgres.migrations import run_script

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    run_script(Path(__file__).with_suffix(".sql").read_text())


def downgrade() -> None:
    op.execute('ALTER TABLE orders."order" DROP COLUMN dispute')
    op.execute("""
        ALTER TABLE orders.money_entry DROP CONSTRAINT ck_money_entry_kind,
            ADD CONSTRAINT ck_money_entry_kind CHECK (kind IN ('charge', 'refund'))""")
