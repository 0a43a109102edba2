"""The places of signed-in fans are found by their holder, ended ones too; those of others cost nothing."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_21_1230"
down_revision = "2026_11_21_1220"

SCHEMA = "queue"


def upgrade() -> None:
    columns = ["event_id", "epoch", "holder"]
    signed_in = sa.text("left(holder, 5) = 'user.'")
    op.create_index("ix_place_user", "place", columns, schema=SCHEMA, postgresql_where=signed_in)


def downgrade() -> None:
    op.drop_index("ix_place_user", "place", schema=SCHEMA)
