-- Charges of which more was refunded than charged.
SELECT c.reference FROM orders.charge c JOIN orders."order" o USING (reference)
WHERE o.event_id = :event_id AND c.amount_minor < c.refunded_minor
