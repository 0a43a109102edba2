-- Ends reservations that nobody is paying, whatever their deadline.
WITH locked AS MATERIALIZED (
    SELECT event_id, reservation_id, status
    FROM inventory.reservation r
    JOIN (SELECT CAST(:event_id AS text) AS event_id, a.* FROM unnest(CAST(:ids AS text[])) AS a (reservation_id)
          OFFSET 0) AS requested USING (event_id, reservation_id)
    ORDER BY reservation_id
    FOR UPDATE OF r
)
UPDATE inventory.reservation r SET status = 'cancelled', ended_at = clock_timestamp(), version = r.version + 1
FROM locked
WHERE r.event_id = locked.event_id AND r.reservation_id = locked.reservation_id AND locked.status = 'pending_payment'
RETURNING r.reservation_id
