"""Slots that the ledger counts are found without reading the calls that are over."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_22_1940"
down_revision = "2026_11_21_1210"

SCHEMA = "queue"


def upgrade() -> None:
    columns = ["event_id", "epoch", "lane", "join_seq"]
    is_open = sa.text("state IN ('called', 'claimed')")
    op.create_index("ix_admission_open", "admission", columns, schema=SCHEMA, postgresql_where=is_open)


def downgrade() -> None:
    op.drop_index("ix_admission_open", "admission", schema=SCHEMA)
