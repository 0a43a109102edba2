-- The charges of an event, oldest first, each with the sums of its refunds and disputes.
SELECT c.id, c.reference, c.provider, c.charge_ref, c.currency, c.amount_minor AS charged_minor, c.refunded_minor, c.disputed_minor
FROM orders.charge c
WHERE c.id > :after AND :event_id = (SELECT o.event_id FROM orders."order" o WHERE o.reference = c.reference)
ORDER BY c.id LIMIT :count_max
