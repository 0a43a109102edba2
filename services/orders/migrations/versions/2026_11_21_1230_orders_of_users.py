"""The orders of a signed-in user, at whichever event; those of others cost nothing."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_21_1230"
down_revision = "2026_11_21_1030"

SCHEMA = "orders"


def upgrade() -> None:
    holder = "split_part(principal, ':', 2)"
    of_users = sa.text(f"left({holder}, 5) = 'user.'")
    columns = [sa.text(holder), sa.text("created_at")]
    op.create_index("ix_order_user", "order", columns, schema=SCHEMA, postgresql_where=of_users)


def downgrade() -> None:
    op.drop_index("ix_order_user", "order", schema=SCHEMA)
