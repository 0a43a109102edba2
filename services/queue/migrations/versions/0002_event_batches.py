"""Events in batches behind a cursor, for which nothing is marked as published."""

from pathlib import Path

from alembic import op

from shared.postgres.migrations import run_script

revision = "0002"
down_revision = "2026_11_26_0500"


def upgrade() -> None:
    run_script(Path(__file__).with_suffix(".sql").read_text())


def downgrade() -> None:
    op.execute("DROP TRIGGER pass_event_on ON queue.outbox")
    op.execute("""
        INSERT INTO queue.outbox (event_id, body)
        SELECT e.event ->> 'event_id', e.event
        FROM queue.outbox_batch b, jsonb_array_elements(b.events) WITH ORDINALITY AS e (event, n)
        WHERE b.id > (SELECT coalesce(max(id), 0) FROM queue.outbox_cursor) ORDER BY b.id, e.n""")
    op.execute("DROP TABLE queue.outbox_batch, queue.outbox_cursor")
    op.execute("DROP FUNCTION queue.pass_event_on")
