-- Unpaid holds past their deadline, longest overdue first, in index order. Concurrent scans skip each other's rows.
-- The event is compared as an expression: else the planner might take the index of live holders and sort.
SELECT r.reservation_id FROM inventory.reservation r
WHERE r.event_id || '' = :event_id AND r.status = 'pending_payment'
    AND r.reserved_until_ms < CAST(:now_ms AS bigint)
        - 1000 * (SELECT e.grace_s FROM inventory.event e WHERE e.event_id = :event_id)
ORDER BY r.reserved_until_ms
LIMIT :count_max
FOR UPDATE SKIP LOCKED
