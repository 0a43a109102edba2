"""An attempt may authorise first and take the money once the order is confirmed; until then it is live."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_21_1510"
down_revision = "2026_11_21_1520"

SCHEMA, TABLE, INDEX = "orders", "payment_attempt", "uq_payment_attempt_live"
BEFORE = "status IN ('created', 'unknown', 'requires_action', 'processing')"
AFTER = "status IN ('created', 'unknown', 'requires_action', 'processing', 'authorised')"


def upgrade() -> None:
    at_once: sa.Column[bool] = sa.Column("capture", sa.Boolean(), nullable=False, server_default=sa.text("true"))
    op.add_column(TABLE, at_once, schema=SCHEMA)
    _index(AFTER)


def downgrade() -> None:
    _index(BEFORE)
    op.drop_column(TABLE, "capture", schema=SCHEMA)


def _index(live: str) -> None:
    op.drop_index(INDEX, TABLE, schema=SCHEMA)
    op.create_index(INDEX, TABLE, ["reference"], unique=True, schema=SCHEMA, postgresql_where=sa.text(live))
