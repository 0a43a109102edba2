"""What providers told of an order is found by its reference."""

from alembic import op

revision = "20261122_2100"
down_revision = "2026_11_22_2011"

SCHEMA, TABLE, INDEX = "orders", "webhook_inbox", "ix_webhook_inbox_reference"


def upgrade() -> None:
    op.create_index(INDEX, TABLE, ["reference"], schema=SCHEMA)


def downgrade() -> None:
    op.drop_index(INDEX, TABLE, schema=SCHEMA)
