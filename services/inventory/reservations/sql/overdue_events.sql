-- Events with a live reservation past its deadline, grace included. The first comparison is the range of the index.
SELECT DISTINCT r.event_id FROM inventory.reservation r JOIN inventory.event e USING (event_id)
WHERE r.status IN ('pending_payment', 'paying') AND r.reserved_until_ms < CAST(:now_ms AS bigint)
    AND r.reserved_until_ms < CAST(:now_ms AS bigint) - 1000 * e.grace_s
