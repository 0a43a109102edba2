-- Events with a live reservation past its deadline, grace included, or within `soon_ms` of it: whether it is past, and
-- whether another is near. The first comparison is the range of the index.
SELECT r.event_id,
    bool_or(r.reserved_until_ms + 1000 * e.grace_s < CAST(:now_ms AS bigint)) AS overdue,
    bool_or(r.reserved_until_ms + 1000 * e.grace_s >= CAST(:now_ms AS bigint)) AS soon
FROM inventory.reservation r JOIN inventory.event e USING (event_id)
WHERE r.status IN ('pending_payment', 'paying') AND r.reserved_until_ms < CAST(:now_ms AS bigint) + :soon_ms
    AND r.reserved_until_ms < CAST(:now_ms AS bigint) + :soon_ms - 1000 * e.grace_s
GROUP BY r.event_id
