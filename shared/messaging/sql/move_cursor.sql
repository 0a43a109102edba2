-- Moves the cursor from where it was read; not if somebody has moved it since, to publish events again.
INSERT INTO {schema}.outbox_cursor AS c (name, id) VALUES (:name, CAST(:to AS bigint))
ON CONFLICT (name) DO UPDATE SET id = excluded.id WHERE c.id = CAST(:read AS bigint)
