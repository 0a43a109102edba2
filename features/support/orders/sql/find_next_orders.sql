-- Finds the next orders of an event that have money or tickets left to refund, or that wait for payment, oldest first.
-- `OFFSET 0` keeps the planner from reading the money entries of all orders.
SELECT o.reference FROM orders."order" o
WHERE o.event_id = :event_id
    AND (CAST(:after AS text) IS NULL OR (o.created_at, o.reference) > (
        SELECT a.created_at, a.reference FROM orders."order" a WHERE a.reference = CAST(:after AS text)))
    AND (
        (o.status = 'pending' AND o.cancel_requested_at IS NULL)
        OR (o.status IN ('confirmed', 'partially_refunded') AND (
            EXISTS (SELECT FROM jsonb_array_elements(o.lines) AS line
                WHERE coalesce((line ->> 'returned')::integer, 0) < jsonb_array_length(line -> 'tickets'))
            OR EXISTS (
                SELECT FROM orders.money_entry m
                WHERE m.reference = o.reference AND m.kind = 'charge' AND m.charge_ref = o.charge_ref
                    AND m.amount_minor > (
                        SELECT coalesce(sum(r.amount_minor), 0) FROM orders.refund r
                        WHERE r.reference = m.reference AND r.charge_ref = m.charge_ref AND r.status <> 'refused') OFFSET 0))))
ORDER BY o.created_at, o.reference
LIMIT :count_max
