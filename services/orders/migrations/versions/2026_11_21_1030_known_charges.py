"""A webhook remembers the charge of which it says that it succeeded, so that what is known is not asked again; and the
checks on amounts, quantities and kinds that the first tables promised are made.
"""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_21_1030"
down_revision = "2026_11_21_0900"
branch_labels = None
depends_on = None

CHECKS = (
    ("order_line", "quantity", "quantity > 0"),
    ("money_entry", "kind", "kind IN ('charge', 'refund')"),
    ("money_entry", "amount", "amount_minor > 0"),
    ("refund", "amount", "amount_minor > 0"),
)


def upgrade() -> None:
    op.add_column("webhook_inbox", sa.Column("charge_ref", sa.Text(), nullable=True), schema="orders")
    for table, name, condition in CHECKS:
        op.create_check_constraint(op.f(f"ck_{table}_{name}"), table, condition, schema="orders")


def downgrade() -> None:
    for table, name, _ in CHECKS:
        op.drop_constraint(op.f(f"ck_{table}_{name}"), table, schema="orders", type_="check")
    op.drop_column("webhook_inbox", "charge_ref", schema="orders")
