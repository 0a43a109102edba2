SELECT '{schema}' AS source, (SELECT coalesce(max(id), 0) FROM {schema}.outbox_cursor WHERE name = 'relay') AS cursor,
    CASE WHEN is_called THEN last_value ELSE 0 END AS last FROM {schema}.outbox_batch_id_seq
