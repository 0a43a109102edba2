-- Of each outbox the cursor and the last id that was drawn; and, if they differ anywhere, a transaction id that is taken after
-- all of them were read: whatever drew an id up to them has a lower one.
WITH outbox AS MATERIALIZED (
{of_each}
), waiting AS MATERIALIZED (SELECT count(*) FILTER (WHERE last <> cursor) AS outboxes FROM outbox)
SELECT o.source, o.cursor, o.last, CASE WHEN w.outboxes > 0 THEN CAST(pg_current_xact_id() AS text) END AS xid
FROM waiting AS w CROSS JOIN outbox AS o
