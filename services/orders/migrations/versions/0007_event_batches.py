"""Events in batches behind a cursor, for which nothing is marked as published."""

from pathlib import Path

from alembic import op

from shared.postgres.migrations import run_script

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    run_script(Path(__file__).with_suffix(".sql").read_text())


def downgrade() -> None:
    op.execute("DROP TRIGGER pass_event_on ON orders.outbox")
    op.execute("""
        INSERT INTO orders.outbox (event_id, body)
        SELECT e.event ->> 'event_id', e.event
        FROM orders.outbox_batch b, jsonb_array_elements(b.events) WITH ORDINALITY AS e (event, n)
        WHERE b.id > (SELECT coalesce(max(id), 0) FROM orders.outbox_cursor) ORDER BY b.id, e.n""")
    first = (Path(__file__).parent / "0001_first.sql").read_text()
    function = first[first.index("CREATE FUNCTION orders.queue_deliveries") :]
    op.execute("DROP TRIGGER queue_deliveries ON orders.outbox_batch")
    run_script(function.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION"))
    op.execute("DROP TABLE orders.outbox_batch, orders.outbox_cursor")
    op.execute("DROP FUNCTION orders.pass_event_on")
