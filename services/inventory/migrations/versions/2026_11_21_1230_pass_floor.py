"""The epoch below which passes take nothing any more."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_21_1230"
down_revision = "20261121_1310"

SCHEMA = "inventory"


def upgrade() -> None:
    floor = sa.Column("pass_floor", sa.Integer, nullable=False, server_default="0")
    op.add_column("event", floor, schema=SCHEMA)


def downgrade() -> None:
    op.drop_column("event", "pass_floor", schema=SCHEMA)
