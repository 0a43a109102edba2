-- Whether every transaction before this one has ended, so that every id it drew is committed or will never be; and of each
-- outbox the age of the oldest waiting batch that is committed, by the database's clock.
SELECT o.source, o.age_s, pg_snapshot_xmin(pg_current_snapshot()) >= CAST(CAST(:xid AS text) AS xid8) AS is_decided
FROM (
{of_each}
) AS o
