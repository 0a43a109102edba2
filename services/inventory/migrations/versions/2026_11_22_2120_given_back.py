"""How many tickets of a hold were given back before anybody paid for it."""

import sqlalchemy as sa
from alembic import op

revision = "20261122_2120"
down_revision = "20261122_2110"

SCHEMA, TABLE, COLUMN = "inventory", "reservation", "given_back"


def upgrade() -> None:
    column: sa.Column[int] = sa.Column(
        COLUMN, sa.Integer(), nullable=False, server_default="0", comment="Tickets, while nobody paid."
    )
    op.add_column(TABLE, column, schema=SCHEMA)


def downgrade() -> None:
    op.drop_column(TABLE, COLUMN, schema=SCHEMA)
