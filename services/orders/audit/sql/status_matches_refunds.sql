-- Orders whose status contradicts the money refunded.
SELECT o.reference FROM orders."order" o CROSS JOIN LATERAL (
    SELECT coalesce(sum(m.amount_minor) FILTER (WHERE m.kind = 'refund'), 0) AS minor,
        coalesce(sum(CASE m.kind WHEN 'refund' THEN 0 WHEN 'dispute' THEN m.amount_minor ELSE -m.amount_minor END), 0) AS disputed
    FROM orders.money_entry m
    WHERE m.reference = o.reference AND m.kind <> 'charge' AND m.charge_ref = o.charge_ref) AS back
WHERE o.event_id = :event_id AND o.charge_ref IS NOT NULL AND CASE o.status
    WHEN 'confirmed' THEN back.minor <> 0
    WHEN 'partially_refunded' THEN back.minor NOT BETWEEN 1 AND o.total_minor - 1
    WHEN 'refunded' THEN back.minor + back.disputed < o.total_minor END
