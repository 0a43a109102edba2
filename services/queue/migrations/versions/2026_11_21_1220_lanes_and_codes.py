"""How lanes shared the calls, and the codes that open them."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_21_1220"
down_revision = "2026_11_21_1200"

SCHEMA = "queue"
TALLIES = {"calls": sa.BigInteger, "contested": sa.BigInteger, "due": sa.Double, "contests": sa.BigInteger}


def upgrade() -> None:
    for name, kind in TALLIES.items():
        op.add_column("lane", sa.Column(name, kind, nullable=False, server_default=sa.text("0")), schema=SCHEMA)
    op.create_table(
        "code",
        sa.Column("event_id", sa.Text),
        sa.Column("code_hash", sa.LargeBinary),
        sa.Column("lane", sa.SmallInteger, nullable=False),
        sa.Column("uses_max", sa.Integer, nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("uses", sa.Integer, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.clock_timestamp()),
        sa.Column("revoked_at", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("event_id", "code_hash", name="pk_code"),
        sa.CheckConstraint("uses BETWEEN 0 AND uses_max", name="ck_code_uses"),
        schema=SCHEMA,
    )
    op.create_table(
        "code_use",
        sa.Column("event_id", sa.Text),
        sa.Column("epoch", sa.Integer),
        sa.Column("code_hash", sa.LargeBinary),
        sa.Column("holder", sa.Text),
        sa.Column("lane", sa.SmallInteger, nullable=False),
        sa.Column("join_seq", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("event_id", "epoch", "code_hash", "holder", name="pk_code_use"),
        schema=SCHEMA,
    )


def downgrade() -> None:
    op.drop_table("code_use", schema=SCHEMA)
    op.drop_table("code", schema=SCHEMA)
    for name in TALLIES:
        op.drop_column("lane", name, schema=SCHEMA)
