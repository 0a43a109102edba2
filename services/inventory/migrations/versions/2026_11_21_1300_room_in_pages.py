"""Seats and sections change in place: pages keep room for the next version of their rows.

A changed row that stays in its page needs no new entry in any index.
"""

from alembic import op

revision = "20261121_1300"
down_revision = "20261121_0900"


def upgrade() -> None:
    op.execute("ALTER TABLE inventory.seat SET (fillfactor = 50)")
    op.execute("ALTER TABLE inventory.section SET (fillfactor = 50)")


def downgrade() -> None:
    op.execute("ALTER TABLE inventory.seat RESET (fillfactor)")
    op.execute("ALTER TABLE inventory.section RESET (fillfactor)")
