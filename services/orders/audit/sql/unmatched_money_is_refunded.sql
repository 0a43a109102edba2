-- Charges that pay for no sale and were not refunded within :settled_after_s seconds.
SELECT m.reference FROM orders.money_entry m JOIN orders."order" o USING (reference)
WHERE o.event_id = :event_id AND m.kind = 'charge' AND o.status <> 'review'
AND m.created_at < now() - make_interval(secs => :settled_after_s)
AND NOT (o.status IN ('confirmed', 'partially_refunded', 'refunded') AND o.charge_ref = m.charge_ref)
AND m.amount_minor > (
    SELECT coalesce(sum(CASE r.kind WHEN 'reinstatement' THEN -r.amount_minor ELSE r.amount_minor END), 0)
    FROM orders.money_entry r
    WHERE r.reference = m.reference AND r.kind <> 'charge' AND r.charge_ref = m.charge_ref)
