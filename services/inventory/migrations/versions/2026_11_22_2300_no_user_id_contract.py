"""Who a holder is stands in the line alone: no reservation ever named a user."""

import sqlalchemy as sa
from alembic import op

revision = "20261122_2300"
down_revision = "20261122_2120"

SCHEMA = "inventory"


def upgrade() -> None:
    op.drop_column("reservation", "user_id", schema=SCHEMA)


def downgrade() -> None:
    op.add_column("reservation", sa.Column("user_id", sa.Text), schema=SCHEMA)
