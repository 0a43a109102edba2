-- Refunded orders that keep money.
SELECT o.reference FROM orders."order" o
WHERE o.event_id = :event_id AND o.status = 'refunded' AND 0 < (
    SELECT coalesce(sum(CASE WHEN m.kind IN ('charge', 'reinstatement') THEN m.amount_minor ELSE -m.amount_minor END), 0)
    FROM orders.money_entry m
    WHERE m.reference = o.reference AND m.charge_ref = coalesce(o.charge_ref, m.charge_ref))
