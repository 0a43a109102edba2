-- The charges of an event, oldest first, each with the sum of its refunds. `OFFSET 0` keeps the planner from turning the
-- refunds of one order into a scan of all.
SELECT m.id, m.reference, m.provider, m.charge_ref, m.currency, m.amount_minor AS charged_minor, coalesce((
    SELECT sum(r.amount_minor)
    FROM (SELECT * FROM orders.money_entry WHERE reference = m.reference OFFSET 0) AS r
    WHERE r.kind = 'refund' AND r.provider = m.provider
        AND r.charge_ref = m.charge_ref), 0)::bigint AS refunded_minor
FROM orders.money_entry m
WHERE m.kind = 'charge' AND m.id > :after
    AND :event_id = (SELECT o.event_id FROM orders."order" o WHERE o.reference = m.reference)
ORDER BY m.id LIMIT :count_max
