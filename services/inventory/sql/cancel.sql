-- Ends reservations that nobody is paying, whatever their deadline.
WITH mine AS MATERIALIZED (
    SELECT reservation_id FROM inventory.reservation
    WHERE event_id = :event_id AND reservation_id = ANY(CAST(:ids AS text[])) AND status = 'pending_payment'
    ORDER BY reservation_id
    FOR UPDATE
)
UPDATE inventory.reservation r SET status = 'cancelled', ended_at = clock_timestamp(), version = r.version + 1
FROM mine WHERE r.event_id = :event_id AND r.reservation_id = mine.reservation_id
RETURNING r.reservation_id
