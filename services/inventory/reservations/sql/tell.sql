-- Facts, in the transaction that makes them true.
INSERT INTO inventory.outbox (event_id, body)
SELECT :event_id, CAST(body AS jsonb) FROM unnest(CAST(:bodies AS text[])) AS b (body)
