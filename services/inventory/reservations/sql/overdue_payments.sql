-- Reservations that are being paid past their deadline, grace included; the longest overdue first.
-- The event is compared as an expression: else the planner might take the index of live holders and sort.
SELECT r.reservation_id, r.order_reference FROM inventory.reservation r
WHERE r.event_id || '' = :event_id AND r.status = 'paying' AND r.reserved_until_ms < CAST(:now_ms AS bigint)
- 1000 * (SELECT e.grace_s FROM inventory.event e WHERE e.event_id = :event_id)
ORDER BY r.reserved_until_ms LIMIT :count_max
