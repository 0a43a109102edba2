-- Writes events into the outbox, in the transaction that makes the change.
INSERT INTO inventory.outbox (event_id, body)
SELECT :event_id, CAST(body AS jsonb) FROM unnest(CAST(:bodies AS text[])) AS b (body)
