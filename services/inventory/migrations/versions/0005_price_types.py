"""Price types of events and tickets, and traits of places."""

from pathlib import Path

from alembic import op

from shared.postgres.migrations import run_script

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    run_script(Path(__file__).with_suffix(".sql").read_text())


def downgrade() -> None:
    op.execute("DELETE FROM inventory.section WHERE kind = 'type'")
    op.execute("""
        WITH merged AS (
            DELETE FROM inventory.reservation_ga WHERE type_id <> ''
            RETURNING event_id, reservation_id, section_id, quantity, unit_price_minor)
        INSERT INTO inventory.reservation_ga (event_id, reservation_id, section_id, quantity, unit_price_minor)
        SELECT event_id, reservation_id, section_id, sum(quantity), max(unit_price_minor) FROM merged GROUP BY 1, 2, 3
        ON CONFLICT (event_id, reservation_id, section_id, type_id)
        DO UPDATE SET quantity = inventory.reservation_ga.quantity + excluded.quantity""")
    op.execute("ALTER TABLE inventory.reservation_ga DROP CONSTRAINT pk_reservation_ga, DROP COLUMN type_id")
    op.execute(
        "ALTER TABLE inventory.reservation_ga ADD CONSTRAINT pk_reservation_ga "
        "PRIMARY KEY (event_id, reservation_id, section_id)"
    )
    op.execute("ALTER TABLE inventory.reservation_seat DROP COLUMN type_id")
    op.execute("ALTER TABLE inventory.section DROP COLUMN prices, DROP COLUMN traits")
    op.execute("ALTER TABLE inventory.event DROP COLUMN price_types")
