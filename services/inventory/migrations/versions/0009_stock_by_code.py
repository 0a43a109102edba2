"""Stock by code: allotments that are sold to who has a code or came by a lane."""

from pathlib import Path

from alembic import op

from shared.postgres.migrations import run_script

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    run_script(Path(__file__).with_suffix(".sql").read_text())


def downgrade() -> None:
    op.execute("DROP INDEX inventory.ix_seat_allotted")
    op.execute("UPDATE inventory.seat SET allotment_id = NULL WHERE allotment_id IS NOT NULL AND status <> 'blocked'")
    op.execute(
        "ALTER TABLE inventory.seat "
        "ADD CONSTRAINT ck_seat_allotted_is_blocked CHECK (allotment_id IS NULL OR status = 'blocked')"
    )
    op.execute("COMMENT ON COLUMN inventory.seat.allotment_id IS "
               "'The allotment of a blocked seat; null if it is blocked manually.'")  # fmt: skip
    op.execute("""
        WITH pool AS (
            UPDATE inventory.reservation_ga SET section_id = split_part(section_id, '~', 1)
            WHERE section_id LIKE '_%~%' RETURNING 1
        ), merged AS (
            DELETE FROM inventory.section WHERE section_id LIKE '_%~%'
            RETURNING event_id, split_part(section_id, '~', 1) AS section_id, capacity, seats_remaining, blocked,
                      overbooked_accepted
        )
        UPDATE inventory.section s
        SET capacity = s.capacity + m.capacity, seats_remaining = s.seats_remaining + m.seats_remaining,
            blocked = s.blocked + m.blocked, overbooked_accepted = s.overbooked_accepted + m.overbooked_accepted
        FROM (SELECT event_id, section_id, sum(capacity) AS capacity, sum(seats_remaining) AS seats_remaining,
                     sum(blocked) AS blocked, sum(overbooked_accepted) AS overbooked_accepted
              FROM merged GROUP BY 1, 2) AS m
        WHERE s.event_id = m.event_id AND s.section_id = m.section_id""")
    op.execute("ALTER TABLE inventory.allotment DROP COLUMN codes, DROP COLUMN lanes, DROP COLUMN sold_before")
