"""No foreign keys on what every order writes (the audit asks instead), and a small index on when orders changed."""

from alembic import op

revision = "2026_11_21_1810"
down_revision = "2026_11_21_1510"

SCHEMA = "orders"
KEYS = {
    "order_line": "fk_order_line_reference",
    "order_extra": "fk_order_extra_reference",
    "payment_attempt": "fk_payment_attempt_reference",
}
CHANGED = "ix_order_changed_at"


def upgrade() -> None:
    for table, key in KEYS.items():
        op.drop_constraint(key, table, schema=SCHEMA, type_="foreignkey")
    op.drop_index(CHANGED, "order", schema=SCHEMA)
    op.create_index(CHANGED, "order", ["changed_at"], schema=SCHEMA, postgresql_using="brin")


def downgrade() -> None:
    op.drop_index(CHANGED, "order", schema=SCHEMA)
    op.create_index(CHANGED, "order", ["changed_at"], schema=SCHEMA)
    to = ["reference"]
    for table, key in KEYS.items():
        op.create_foreign_key(key, table, "order", to, to, source_schema=SCHEMA, referent_schema=SCHEMA)
