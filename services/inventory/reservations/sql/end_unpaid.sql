-- Ends those of these reservations that nobody is paying: as cancelled whatever their deadline, as expired only past their
-- deadline by every clock, PostgreSQL's included.
WITH locked AS MATERIALIZED (
    SELECT event_id, reservation_id, status, reserved_until_ms
    FROM inventory.reservation r
    JOIN (SELECT CAST(:event_id AS text) AS event_id, a.* FROM unnest(CAST(:ids AS text[])) AS a (reservation_id)
          OFFSET 0) AS requested USING (event_id, reservation_id)
    ORDER BY reservation_id
    FOR UPDATE OF r
)
UPDATE inventory.reservation r SET status = CAST(:status AS text), ended_at = clock_timestamp(), version = r.version + 1
FROM locked
WHERE r.event_id = locked.event_id AND r.reservation_id = locked.reservation_id AND locked.status = 'pending_payment'
  AND (CAST(:status AS text) = 'cancelled'
       OR locked.reserved_until_ms + 1000 * (SELECT e.grace_s FROM inventory.event e WHERE e.event_id = :event_id)
          < least(CAST(:now_ms AS bigint),
                  CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint) + CAST(:clock_offset_ms AS bigint)))
RETURNING r.reservation_id, r.version
