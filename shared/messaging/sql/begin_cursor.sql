-- A cursor that is new begins after what is published; so does one that is ahead of all ids, as after rows of an older copy were
-- loaded.
INSERT INTO {schema}.outbox_cursor AS c (name, id)
SELECT :name, least(last_value, coalesce((SELECT id FROM {schema}.outbox_cursor WHERE name = 'relay'), 0))
FROM {schema}.outbox_batch_id_seq
ON CONFLICT (name) DO UPDATE SET id = excluded.id WHERE c.id > (SELECT last_value FROM {schema}.outbox_batch_id_seq)
