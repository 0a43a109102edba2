-- Live reservations of these holders. Each holder is looked up by itself (`OFFSET 0` keeps it so): joined, the planner may
-- read every reservation of the event.
SELECT r.holder, r.reservation_id, r.status, r.reserved_until_ms + 1000 * e.grace_s AS until_ms
FROM inventory.event e
CROSS JOIN unnest(CAST(:holders AS text[])) AS a (holder)
CROSS JOIN LATERAL (
    SELECT * FROM inventory.reservation r
    WHERE r.event_id = e.event_id AND r.holder = a.holder AND r.status IN ('pending_payment', 'paying')
    OFFSET 0
) AS r
WHERE e.event_id = :event_id
