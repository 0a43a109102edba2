-- The fan's one extension: a hold that nobody pays lasts from now as long as it was given first.
UPDATE inventory.reservation r
SET reserved_until_ms = greatest(r.reserved_until_ms,
                                 CAST(:now_ms AS bigint) + 1000 * coalesce(r.hold_ttl_s, e.hold_ttl_s)),
    extended = true, version = r.version + 1
FROM inventory.event e
WHERE r.event_id = :event_id AND e.event_id = r.event_id AND r.reservation_id = :reservation_id
  AND r.status = 'pending_payment' AND NOT r.extended AND r.reserved_until_ms + 1000 * e.grace_s >= CAST(:now_ms AS bigint)
RETURNING r.reserved_until_ms
