-- Deletes the oldest batches up to this id, a piece at a time, if they were written more than a day ago and every cursor is past
-- them; one that stands still holds them for a week.
DELETE FROM {schema}.outbox_batch
WHERE id IN (SELECT id FROM {schema}.outbox_batch WHERE id <= CAST(:up_to AS bigint) ORDER BY id LIMIT CAST(:rows_max AS int))
    AND written_at < now() - interval '1 day'
    AND (id <= (SELECT min(id) FROM {schema}.outbox_cursor) OR written_at < now() - interval '7 days')
