-- Sold orders that are neither paid nor authorised in exactly their total.
SELECT o.reference FROM orders."order" o
WHERE o.event_id = :event_id AND o.status IN ('confirmed', 'partially_refunded') AND o.total_minor > 0
AND NOT EXISTS (
    SELECT FROM orders.money_entry m WHERE m.reference = o.reference AND m.kind = 'charge'
    AND m.charge_ref = o.charge_ref AND m.amount_minor = o.total_minor AND m.currency = o.currency)
AND NOT EXISTS (
    SELECT FROM orders.payment_attempt a WHERE a.reference = o.reference AND a.status = 'authorised'
    AND a.provider_ref = o.charge_ref AND a.amount_minor = o.total_minor AND a.currency = o.currency)
