-- Orders whose status contradicts the money refunded.
SELECT o.reference FROM orders."order" o CROSS JOIN LATERAL (
    SELECT coalesce(sum(m.amount_minor), 0) AS minor FROM orders.money_entry m
    WHERE m.reference = o.reference AND m.kind = 'refund' AND m.charge_ref = o.charge_ref) AS back
WHERE o.event_id = :event_id AND o.charge_ref IS NOT NULL AND CASE o.status
    WHEN 'confirmed' THEN back.minor <> 0
    WHEN 'partially_refunded' THEN back.minor NOT BETWEEN 1 AND o.total_minor - 1
    WHEN 'refunded' THEN back.minor < o.total_minor END
