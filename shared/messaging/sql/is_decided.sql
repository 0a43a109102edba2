-- Whether every transaction before this one has ended, so that every id it drew is committed or will never be; and the age
-- of the oldest waiting batch that is committed, by the database's clock.
SELECT pg_snapshot_xmin(pg_current_snapshot()) >= CAST(CAST(:xid AS text) AS xid8) AS is_decided,
       coalesce((SELECT extract(epoch FROM clock_timestamp() - b.written_at) FROM {schema}.outbox_batch b
                 WHERE b.id > (SELECT coalesce(max(id), 0) FROM {schema}.outbox_cursor) ORDER BY b.id LIMIT 1), 0) AS age_s
