-- The next batches after this cursor up to a decided id, event by event, until they are so many bytes as they are stored; one
-- row without an event if there are none.
SELECT c.id AS cursor, w.id, w.age_s, e.event ->> 'id' AS key, e.event ->> 'event_id' AS event_id, e.event ->> 'type' AS type,
    CAST(e.event AS text) AS body
FROM (SELECT coalesce(max(id), 0) AS id FROM {schema}.outbox_cursor WHERE name = :name) AS c
LEFT JOIN LATERAL (
    SELECT n.id, n.events, CAST(extract(epoch FROM clock_timestamp() - n.written_at) AS float8) AS age_s,
        sum(n.bytes) OVER (ORDER BY n.id) - n.bytes AS bytes_before
    FROM (SELECT b.id, b.events, b.written_at, pg_column_size(b.events) AS bytes FROM {schema}.outbox_batch b
          WHERE b.id > c.id AND b.id <= CAST(:last AS bigint) ORDER BY b.id LIMIT CAST(:rows_max AS int)) AS n
) AS w ON w.bytes_before < CAST(:bytes_max AS int)
LEFT JOIN LATERAL jsonb_array_elements(w.events) WITH ORDINALITY AS e (event, n) ON true
ORDER BY w.id, e.n
