SELECT '{schema}' AS source, coalesce((
    SELECT extract(epoch FROM clock_timestamp() - b.written_at) FROM {schema}.outbox_batch b
    WHERE b.id > (SELECT coalesce(max(id), 0) FROM {schema}.outbox_cursor WHERE name = 'relay')
    ORDER BY b.id LIMIT 1), 0) AS age_s
