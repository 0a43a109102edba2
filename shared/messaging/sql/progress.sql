-- The cursor, the last id that was drawn, and, if they differ, a transaction id that is taken after that id was read:
-- whatever drew an id up to it has a lower one.
SELECT c.id AS cursor, s.last, CASE WHEN s.last <> c.id THEN CAST(pg_current_xact_id() AS text) END AS xid
FROM (SELECT CASE WHEN is_called THEN last_value ELSE 0 END AS last FROM {schema}.outbox_batch_id_seq) AS s,
     (SELECT coalesce(max(id), 0) AS id FROM {schema}.outbox_cursor) AS c
