"""The schema `orders`: orders, payments, refunds, tickets, mail, webhooks, prices, outbox."""

from pathlib import Path

from shared.postgres.migrations import drop_tables, run_script

revision = "2026_11_26_0500"
down_revision = None


def upgrade() -> None:
    run_script(Path(__file__).with_suffix(".sql").read_text())


def downgrade() -> None:
    drop_tables("orders")
    run_script("DROP FUNCTION orders.queue_deliveries, orders.refuse_change")
