-- The one extension of an unpaid hold: its first length again, from now on.
WITH mine AS MATERIALIZED (
    SELECT r.event_id, r.reservation_id, r.status, r.extended, r.reserved_until_ms, e.grace_s,
           coalesce(r.hold_ttl_s, e.hold_ttl_s) AS hold_ttl_s
    FROM inventory.reservation r JOIN inventory.event e USING (event_id)
    WHERE r.reservation_id = :reservation_id
    FOR UPDATE OF r
)
UPDATE inventory.reservation r
SET reserved_until_ms = greatest(r.reserved_until_ms, CAST(:now_ms AS bigint) + 1000 * mine.hold_ttl_s),
    extended = true, version = r.version + 1
FROM mine
WHERE r.event_id = mine.event_id AND r.reservation_id = mine.reservation_id AND mine.event_id = CAST(:event_id AS text)
  AND mine.status = 'pending_payment' AND NOT mine.extended
  AND mine.reserved_until_ms + 1000 * mine.grace_s >= CAST(:now_ms AS bigint)
RETURNING r.version, r.reserved_until_ms
