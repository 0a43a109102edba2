-- Of these, what is past its deadline by every clock, the ledger's own among them, and nobody is paying.
WITH due AS MATERIALIZED (
    SELECT r.reservation_id FROM inventory.reservation r JOIN inventory.event e USING (event_id)
    WHERE r.event_id = :event_id AND r.reservation_id = ANY(CAST(:ids AS text[])) AND r.status = 'pending_payment'
      AND r.reserved_until_ms + 1000 * e.grace_s
          < least(CAST(:now_ms AS bigint),
                  CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint) + CAST(:clock_offset_ms AS bigint))
    ORDER BY r.reservation_id
    FOR UPDATE OF r
)
UPDATE inventory.reservation r SET status = 'expired', ended_at = clock_timestamp(), version = r.version + 1
FROM due WHERE r.event_id = :event_id AND r.reservation_id = due.reservation_id
RETURNING r.reservation_id
