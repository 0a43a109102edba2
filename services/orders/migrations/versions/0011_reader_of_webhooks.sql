-- The trigger waits for every transaction that has drawn an id, and others wait for its end before they draw one: the events up
-- to the last id have their deliveries, and the reader's cursor begins after it.
DROP TRIGGER queue_deliveries ON orders.outbox_batch;
DROP FUNCTION orders.queue_deliveries();
INSERT INTO orders.outbox_cursor (name, id)
SELECT 'webhooks', CASE WHEN is_called THEN last_value ELSE 0 END FROM orders.outbox_batch_id_seq;
