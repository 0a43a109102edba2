"""How long fans take from hold to payment, when holds end, and which of two lengths a hold was given."""

import sqlalchemy as sa
from alembic import op

revision = "20261121_1340"
down_revision = "20261121_1330"

SCHEMA = "inventory"


def upgrade() -> None:
    op.add_column("event", sa.Column("hold_ttl_b_s", sa.Integer), schema=SCHEMA)
    percent = sa.Column("hold_ttl_b_percent", sa.Float, nullable=False, server_default="0")
    op.add_column("event", percent, schema=SCHEMA)
    op.add_column("reservation", sa.Column("hold_ttl_s", sa.Integer), schema=SCHEMA)
    arm = sa.Column("arm", sa.Text, comment="Of a comparison of two hold_ttl_s, while there was one: a or b.")
    op.add_column("reservation", arm, schema=SCHEMA)
    begun = sa.Column("payment_begun_at", sa.DateTime(timezone=True), comment="The first time.")
    op.add_column("reservation", begun, schema=SCHEMA)
    ended = sa.Column("ended_at", sa.DateTime(timezone=True), comment="Ended without a sale.")
    op.add_column("reservation", ended, schema=SCHEMA)


def downgrade() -> None:
    for name in ("ended_at", "payment_begun_at", "arm", "hold_ttl_s"):
        op.drop_column("reservation", name, schema=SCHEMA)
    for name in ("hold_ttl_b_percent", "hold_ttl_b_s"):
        op.drop_column("event", name, schema=SCHEMA)
