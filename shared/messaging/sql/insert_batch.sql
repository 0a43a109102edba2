-- Writes the events of a transaction.
INSERT INTO {schema}.outbox_batch (events) VALUES (CAST(:events AS jsonb))
