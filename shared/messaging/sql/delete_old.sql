-- Deletes the oldest batches up to this id, a piece at a time, if they were written more than a day ago.
DELETE FROM {schema}.outbox_batch
WHERE id IN (SELECT id FROM {schema}.outbox_batch WHERE id <= CAST(:up_to AS bigint) ORDER BY id LIMIT CAST(:rows_max AS int))
    AND written_at < now() - interval '1 day'
