-- The charges of an event, oldest first, each with the sums of its refunds and disputes. `OFFSET 0` keeps the planner from turning the
-- refunds of one order into a scan of all.
SELECT m.id, m.reference, m.provider, m.charge_ref, m.currency, m.amount_minor AS charged_minor,
    back.refunded_minor, back.disputed_minor
FROM orders.money_entry m
CROSS JOIN LATERAL (
    SELECT coalesce(sum(r.amount_minor) FILTER (WHERE r.kind = 'refund'), 0)::bigint AS refunded_minor,
        coalesce(sum(CASE r.kind WHEN 'refund' THEN 0 WHEN 'dispute' THEN r.amount_minor ELSE -r.amount_minor END), 0)::bigint
            AS disputed_minor
    FROM (SELECT * FROM orders.money_entry WHERE reference = m.reference OFFSET 0) AS r
    WHERE r.kind <> 'charge' AND r.provider = m.provider AND r.charge_ref = m.charge_ref) AS back
WHERE m.kind = 'charge' AND m.id > :after
    AND :event_id = (SELECT o.event_id FROM orders."order" o WHERE o.reference = m.reference)
ORDER BY m.id LIMIT :count_max
