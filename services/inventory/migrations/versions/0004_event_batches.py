"""Events in batches behind a cursor, for which nothing is marked as published."""

from pathlib import Path

from alembic import op

from shared.postgres.migrations import run_script

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    run_script(Path(__file__).with_suffix(".sql").read_text())


def downgrade() -> None:
    op.execute("DROP TRIGGER pass_event_on ON inventory.outbox")
    op.execute("""
        INSERT INTO inventory.outbox (event_id, body)
        SELECT e.event ->> 'event_id', e.event
        FROM inventory.outbox_batch b, jsonb_array_elements(b.events) WITH ORDINALITY AS e (event, n)
        WHERE b.id > (SELECT coalesce(max(id), 0) FROM inventory.outbox_cursor) ORDER BY b.id, e.n""")
    op.execute("DROP TABLE inventory.outbox_batch, inventory.outbox_cursor")
    op.execute("DROP FUNCTION inventory.pass_event_on")
