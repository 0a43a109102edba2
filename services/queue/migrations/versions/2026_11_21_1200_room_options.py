"""A room's options: one column for all its parts."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "2026_11_21_1200"
down_revision = "2026_11_21_0900"

SCHEMA = "queue"


def upgrade() -> None:
    options = sa.Column("options", JSONB, nullable=False, server_default=sa.text("'{}'"))
    op.add_column("room", options, schema=SCHEMA)


def downgrade() -> None:
    op.drop_column("room", "options", schema=SCHEMA)
