"""Rows of a section may have prices of their own; best available may leave single seats or not."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "20261121_1310"
down_revision = "20261121_1300"

SCHEMA = "inventory"


def upgrade() -> None:
    levels = sa.Column("price_levels", JSONB, nullable=False, server_default=sa.text("'[]'"))
    op.add_column("section", levels, schema=SCHEMA)
    tidy = sa.Column("avoid_single_seats", sa.Boolean, nullable=False, server_default=sa.text("true"))
    op.add_column("event", tidy, schema=SCHEMA)


def downgrade() -> None:
    op.drop_column("event", "avoid_single_seats", schema=SCHEMA)
    op.drop_column("section", "price_levels", schema=SCHEMA)
