-- Charges of which more refunds were requested than charged.
SELECT m.reference FROM orders.money_entry m JOIN orders."order" o USING (reference)
WHERE o.event_id = :event_id AND m.kind = 'charge'
AND m.amount_minor < (SELECT coalesce(sum(r.amount_minor), 0) FROM orders.refund r
    WHERE r.reference = m.reference AND r.charge_ref = m.charge_ref AND r.status <> 'refused')
