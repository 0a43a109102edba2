-- The backstop: what is past its deadline, whatever the gate remembers. Several scanners share the work.
SELECT r.reservation_id FROM inventory.reservation r JOIN inventory.event e USING (event_id)
WHERE r.event_id = :event_id AND r.status = 'pending_payment' AND r.reserved_until_ms < CAST(:now_ms AS bigint) - 1000 * e.grace_s
ORDER BY r.reservation_id
LIMIT :count_max
FOR UPDATE OF r SKIP LOCKED
