-- Every configuration that a room of these events had, oldest first. $1 events
SELECT substr(subject, 7) AS event_id, CAST(extract(epoch FROM at) * 1000 AS bigint) AS at_ms, action, after
FROM queue.audit_log
WHERE subject = ANY(SELECT 'event:' || event_id FROM unnest($1::text[]) AS e (event_id)) AND after ? 'rate_per_s'
ORDER BY id
